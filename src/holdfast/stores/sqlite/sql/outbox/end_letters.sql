-- Ends the letters of messages that an operator has retried or skipped. A letter that is being replayed is left to its job,
-- which ends it.
UPDATE holdfast_dead_letters
   SET version = version + 1, state = :state, notes = coalesce(:notes, notes), plan = NULL, updated_at = :now
 WHERE job_id IN (SELECT value FROM json_each(:ids))
   AND state IN ('new', 'triaged', 'remediated', 'validated')
RETURNING job_id
