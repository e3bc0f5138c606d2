-- Deletes messages that were published or skipped before :until. A live job may run again: the messages that it has
-- published are kept, with their keys.
DELETE FROM holdfast_outbox_messages
 WHERE sequence IN (
       SELECT sequence
         FROM (SELECT sequence
                 FROM holdfast_outbox_messages INDEXED BY holdfast_idx_outbox_status
                WHERE status = 'published' AND created_at <= :until AND processed_at <= :until
                  AND (job_id IS NULL
                       OR NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE holdfast_jobs.id = job_id))
                ORDER BY created_at
                LIMIT :limit)
        UNION ALL
       SELECT sequence
         FROM (SELECT sequence
                 FROM holdfast_outbox_messages INDEXED BY holdfast_idx_outbox_status
                WHERE status = 'skipped' AND created_at <= :until AND processed_at <= :until
                  AND (job_id IS NULL
                       OR NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE holdfast_jobs.id = job_id))
                ORDER BY created_at
                LIMIT :limit)
        LIMIT :limit)
