-- Makes failed messages pending again. What is behind them stays held until they are published.
UPDATE holdfast_outbox_messages
   SET status = 'pending', retry_count = 0, due_at = NULL, held_by = NULL, note = :note
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND +status = 'failed'  -- by the ids
RETURNING id, dead_job_id
