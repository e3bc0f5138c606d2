-- Deletes the tickets that a trigger has just written. A ticket with facts is older: its letter was deleted before
-- the notification.
DELETE FROM holdfast_tickets WHERE job_id IN (SELECT value FROM json_each(:ids)) AND facts = '{}'
