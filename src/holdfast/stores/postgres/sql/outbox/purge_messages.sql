-- Deletes messages that were published or skipped before $1. A live job may run again: the messages that it has
-- published are kept, with their keys.
WITH old AS MATERIALIZED (
    SELECT (SELECT now FROM holdfast.clock) - $1::interval AS at
), found AS (
    (SELECT id
       FROM holdfast.outbox_messages, old
      WHERE status = 'published' AND created_at <= old.at AND processed_at <= old.at
        AND (job_id IS NULL OR NOT EXISTS (SELECT FROM holdfast.jobs WHERE jobs.id = job_id))
      ORDER BY created_at
      LIMIT $2)
     UNION ALL
    (SELECT id
       FROM holdfast.outbox_messages, old
      WHERE status = 'skipped' AND created_at <= old.at AND processed_at <= old.at
        AND (job_id IS NULL OR NOT EXISTS (SELECT FROM holdfast.jobs WHERE jobs.id = job_id))
      ORDER BY created_at
      LIMIT $2)
     LIMIT $2
)
DELETE FROM holdfast.outbox_messages
 WHERE id IN (SELECT id FROM found)
   AND status IN ('published', 'skipped')
RETURNING 1
