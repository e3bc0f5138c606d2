-- Makes failed messages pending again. Runs with their partitions locked: the relay that holds one has settled what it
-- sent before. What is behind them stays held until they are published.
UPDATE holdfast.outbox_messages
   SET status = 'pending', retry_count = 0, due_at = NULL, held_by = NULL, note = $2
 WHERE id = ANY ($1::uuid[])
   AND (status = 'failed') IS TRUE  -- by the ids
RETURNING id::text, dead_job_id::text
