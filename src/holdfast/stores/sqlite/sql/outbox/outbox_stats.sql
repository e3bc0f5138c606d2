-- The oldest message is read from the index of each partition: held ones may be older, and many.
SELECT (SELECT count(*) FROM holdfast_outbox_messages WHERE status = 'pending'),
       (SELECT count(*) FROM holdfast_outbox_messages WHERE status = 'pending' AND held_by IS NOT NULL),
       (SELECT count(*) FROM holdfast_outbox_messages WHERE status = 'failed'),
       (SELECT max(:now - oldest)
          FROM (SELECT (SELECT created_at
                          FROM holdfast_outbox_messages INDEXED BY holdfast_outbox_pending
                         WHERE partition_number = number
                           AND status = 'pending' AND held_by IS NULL AND due_at IS NULL
                         ORDER BY sequence
                         LIMIT 1) AS oldest
                  FROM holdfast_outbox_partitions
                 UNION ALL
                SELECT (SELECT min(created_at)
                          FROM holdfast_outbox_messages INDEXED BY holdfast_outbox_retried
                         WHERE partition_number = number
                           AND status = 'pending' AND held_by IS NULL AND due_at IS NOT NULL)
                  FROM holdfast_outbox_partitions)),
       (SELECT count(*) FROM holdfast_outbox_routes WHERE NOT unblocked)
