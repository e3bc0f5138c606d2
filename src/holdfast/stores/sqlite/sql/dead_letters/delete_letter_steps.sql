DELETE FROM holdfast_letter_steps WHERE job_id IN (SELECT value FROM json_each(:ids))
