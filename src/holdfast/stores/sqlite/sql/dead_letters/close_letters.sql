-- Closes letters, whatever their state, and removes them from their plans.
UPDATE holdfast_dead_letters
   SET version = version + 1, state = 'closed', notes = :notes, plan = NULL, updated_at = :now
 WHERE job_id IN (SELECT value FROM json_each(:ids))
RETURNING job_id
