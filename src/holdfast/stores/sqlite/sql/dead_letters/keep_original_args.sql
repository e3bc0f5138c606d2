-- Keeps the arguments with which jobs were submitted; if they were corrected before, the original ones are kept
-- already.
INSERT INTO holdfast_original_args (job_id, args)
SELECT job_id, args FROM holdfast_payloads WHERE job_id IN (SELECT value FROM json_each(:ids))
    ON CONFLICT DO NOTHING
