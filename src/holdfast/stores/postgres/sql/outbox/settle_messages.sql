-- Writes what became of messages. Runs with the partitions $6 locked, which the relay has leased: messages of others do
-- not match, nor do those that were settled, retried or skipped before. A message is held only if what holds it is
-- still there: its release has either seen the message, or comes later.
-- Joined on the primary key alone: the statistics of an outbox are always stale, and a status that could be looked up in
-- an index tempts the planner to read all pending messages. IS TRUE hides it.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
)
UPDATE holdfast.outbox_messages AS message
   SET status = CASE new.change WHEN 'published' THEN 'published' WHEN 'failed' THEN 'failed' ELSE 'pending' END,
       processed_at = CASE new.change WHEN 'published' THEN clock.now END,
       retry_count = new.spent + CASE WHEN new.change IN ('retried', 'failed') THEN 1 ELSE 0 END,
       error_message = coalesce(new.error, message.error_message),
       due_at = CASE new.change WHEN 'retried' THEN clock.now + new.delay WHEN 'held' THEN message.due_at END,
       held_by = CASE WHEN new.change IN ('held', 'blocked') THEN new.held_by END,
       dead_job_id = coalesce(new.dead_job_id, message.dead_job_id)
  FROM clock,
       unnest($1::uuid[], $2::text[], $3::integer[], $4::interval[], $5::text[], $7::text[], $8::uuid[])
       AS new (id, change, spent, delay, error, held_by, dead_job_id)
 WHERE message.id = new.id
   AND (message.status = 'pending') IS TRUE
   AND message.partition_number = ANY ($6::smallint[])
   AND (new.change = 'published' OR coalesce(message.retry_count, 0) = new.spent)
   AND (new.change <> 'held'
        OR EXISTS (SELECT FROM holdfast.outbox_routes WHERE route = new.held_by AND NOT unblocked)
        OR EXISTS (SELECT FROM holdfast.outbox_messages AS ahead
                    WHERE ahead.id = CASE WHEN new.held_by LIKE 'message:%' THEN substr(new.held_by, 9)::uuid END
                      AND (ahead.status IN ('pending', 'failed')) IS TRUE))
RETURNING message.id::text
