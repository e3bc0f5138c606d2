DELETE FROM holdfast_job_events WHERE job_id IN (SELECT value FROM json_each(:ids))
