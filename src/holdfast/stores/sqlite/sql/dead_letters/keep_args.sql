-- Keeps the arguments that jobs were submitted with; if they were corrected before, those are kept already.
INSERT INTO holdfast_original_args (job_id, args)
SELECT job_id, args FROM holdfast_payloads WHERE job_id IN (SELECT value FROM json_each(:ids))
    ON CONFLICT DO NOTHING
