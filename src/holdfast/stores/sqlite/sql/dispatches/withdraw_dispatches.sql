DELETE FROM holdfast_dispatches WHERE job_id IN (SELECT value FROM json_each(:ids))
