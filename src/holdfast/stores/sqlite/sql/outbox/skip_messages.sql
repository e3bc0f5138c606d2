-- Gives up messages; a relay that is publishing one at this moment finds that it is not pending any more.
UPDATE holdfast_outbox_messages
   SET status = 'skipped', processed_at = :now, due_at = NULL, held_by = NULL, note = :note
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND +status IN ('pending', 'failed')  -- by the ids
RETURNING id, dead_job_id
