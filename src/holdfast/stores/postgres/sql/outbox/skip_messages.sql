-- Gives up messages. Runs with their partitions locked, so that none is held behind them afterwards; a relay that is
-- publishing one at this moment finds that it is not pending any more.
UPDATE holdfast.outbox_messages AS message
   SET status = 'skipped', processed_at = clock.now, due_at = NULL, held_by = NULL, note = $2
  FROM (SELECT now FROM holdfast.clock) AS clock
 WHERE message.id = ANY ($1::uuid[])
   AND (message.status IN ('pending', 'failed')) IS TRUE  -- by the ids
RETURNING message.id::text, message.dead_job_id::text
