-- Those that were told; the others have to be, without their letter.
DELETE FROM holdfast_tickets WHERE job_id IN (SELECT value FROM json_each(:ids)) AND told_at IS NOT NULL
