DELETE FROM holdfast_signals WHERE job_id IN (SELECT value FROM json_each(:ids))
