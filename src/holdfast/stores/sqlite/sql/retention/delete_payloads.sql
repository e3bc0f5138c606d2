DELETE FROM holdfast_payloads WHERE job_id IN (SELECT value FROM json_each(:ids))
