INSERT INTO holdfast_payloads (job_id, args)
SELECT value ->> 0, value ->> 4 FROM json_each(:batch)
