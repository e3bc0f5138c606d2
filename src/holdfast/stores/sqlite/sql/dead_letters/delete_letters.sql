DELETE FROM holdfast_dead_letters WHERE job_id IN (SELECT value FROM json_each(:ids))
