-- Deletes the waits of these jobs. The waits of other jobs for them are deleted when those are woken.
DELETE FROM holdfast_awaited WHERE parent_id IN (SELECT value FROM json_each(:ids))
