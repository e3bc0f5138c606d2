DELETE FROM holdfast_original_args WHERE job_id IN (SELECT value FROM json_each(:ids))
