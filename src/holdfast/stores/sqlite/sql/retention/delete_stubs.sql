DELETE FROM holdfast_job_stubs WHERE id IN (SELECT value FROM json_each(:ids))
