-- Writes what became of messages: [[id, change, spent, delay, error, held_by, dead_job_id], ...], all of partitions that
-- the relay has leased. Those that were settled, retried or skipped before do not match. A message is held only if what
-- holds it is still there: its release has either seen the message, or comes later.
UPDATE holdfast_outbox_messages AS message
   SET status = CASE new.change WHEN 'published' THEN 'published' WHEN 'failed' THEN 'failed' ELSE 'pending' END,
       processed_at = CASE new.change WHEN 'published' THEN :now END,
       retry_count = new.spent + (new.change IN ('retried', 'failed')),
       error_message = coalesce(new.error, message.error_message),
       due_at = CASE new.change WHEN 'retried' THEN :now + new.delay WHEN 'held' THEN message.due_at END,
       held_by = CASE WHEN new.change IN ('held', 'blocked') THEN new.held_by END,
       dead_job_id = coalesce(new.dead_job_id, message.dead_job_id)
  FROM (SELECT value ->> 0 AS id, value ->> 1 AS change, value ->> 2 AS spent, value ->> 3 AS delay,
               value ->> 4 AS error, value ->> 5 AS held_by, value ->> 6 AS dead_job_id
          FROM json_each(:batch)) AS new
 WHERE message.id = new.id
   AND +message.status = 'pending'  -- by the id, not by the index of statuses: many messages may be pending
   AND (new.change = 'published' OR coalesce(message.retry_count, 0) = new.spent)
   AND (new.change <> 'held'
        OR EXISTS (SELECT 1 FROM holdfast_outbox_routes WHERE route = new.held_by AND NOT unblocked)
        OR EXISTS (SELECT 1 FROM holdfast_outbox_messages AS ahead
                    WHERE ahead.id = substr(new.held_by, 9) AND ahead.status IN ('pending', 'failed')))
RETURNING id
