-- Deletes the tickets that were notified; the others must still be notified without their letter.
DELETE FROM holdfast_tickets WHERE job_id IN (SELECT value FROM json_each(:ids)) AND told_at IS NOT NULL
