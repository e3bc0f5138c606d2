DELETE FROM holdfast_job_keys WHERE job_id IN (SELECT value FROM json_each(:ids))
