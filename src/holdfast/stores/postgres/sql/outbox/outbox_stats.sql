-- The oldest message is read from the index of each partition: held ones may be older, and many.
SELECT (SELECT count(*) FROM holdfast.outbox_messages WHERE status = 'pending') AS pending,
       (SELECT count(*) FROM holdfast.outbox_messages WHERE status = 'pending' AND held_by IS NOT NULL) AS held,
       (SELECT count(*) FROM holdfast.outbox_messages WHERE status = 'failed') AS failed,
       (SELECT max(greatest(clock.now - oldest.created_at, interval '0'))
          FROM holdfast.clock, holdfast.outbox_partitions AS partition,
               LATERAL (
               (SELECT created_at
                  FROM holdfast.outbox_messages
                 WHERE partition_number = partition.number AND (status = 'pending') IS TRUE AND held_by IS NULL
                   AND due_at IS NULL
                 ORDER BY sequence
                 LIMIT 1)
                UNION ALL
               (SELECT min(created_at)
                  FROM holdfast.outbox_messages
                 WHERE partition_number = partition.number AND (status = 'pending') IS TRUE AND held_by IS NULL
                   AND due_at IS NOT NULL)) AS oldest
         WHERE oldest.created_at IS NOT NULL) AS oldest,
       (SELECT count(*) FROM holdfast.outbox_routes WHERE NOT unblocked) AS blocked_routes
