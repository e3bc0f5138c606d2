DELETE FROM holdfast_tickets WHERE job_id IN (SELECT value FROM json_each(:ids))
