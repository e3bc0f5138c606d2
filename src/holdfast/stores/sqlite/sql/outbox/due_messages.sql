-- Reads the oldest due messages of the partitions that the relay has leased: [[number, token], ...]. One relay has a
-- partition at a time, and what it writes is checked again by settle_messages.sql.
-- A message is behind the first unpublished one of its aggregate that is not among the chosen: failed, held, or retried
-- later. As the oldest are chosen, no message that is due can be ahead of a chosen one. SQLite has no LATERAL: the bound
-- of each partition is the sequence of its last message within the limit.
WITH leased AS MATERIALIZED (
    SELECT partition.number
      FROM json_each(:leases) AS lease
      JOIN holdfast_outbox_partitions AS partition
        ON partition.number = lease.value ->> 0 AND partition.lease_token = lease.value ->> 1
), chosen AS MATERIALIZED (
    SELECT sequence, aggregate_type, aggregate_id
      FROM (SELECT message.sequence, message.aggregate_type, message.aggregate_id
              FROM leased
             CROSS JOIN holdfast_outbox_messages AS message INDEXED BY holdfast_outbox_pending
             WHERE message.partition_number = leased.number
               AND message.status = 'pending' AND message.held_by IS NULL AND message.due_at IS NULL
               AND message.sequence <= coalesce((
                   SELECT sequence
                     FROM holdfast_outbox_messages INDEXED BY holdfast_outbox_pending
                    WHERE partition_number = leased.number
                      AND status = 'pending' AND held_by IS NULL AND due_at IS NULL
                    ORDER BY sequence
                    LIMIT 1 OFFSET :limit - 1), 9223372036854775807)
             UNION ALL
            SELECT message.sequence, message.aggregate_type, message.aggregate_id
              FROM leased
             CROSS JOIN holdfast_outbox_messages AS message INDEXED BY holdfast_outbox_retried
             WHERE message.partition_number = leased.number
               AND message.status = 'pending' AND message.held_by IS NULL AND message.due_at IS NOT NULL
               AND message.due_at <= :now)
     ORDER BY sequence
     LIMIT :limit
), aggregate AS MATERIALIZED (
    SELECT aggregate_type, aggregate_id, max(sequence) AS last FROM chosen GROUP BY aggregate_type, aggregate_id
), ahead AS MATERIALIZED (
    SELECT aggregate_type, aggregate_id,
           (SELECT message.sequence
              FROM holdfast_outbox_messages AS message INDEXED BY holdfast_outbox_unpublished
             WHERE message.aggregate_id = aggregate.aggregate_id
               AND message.aggregate_type = aggregate.aggregate_type
               AND message.status IN ('pending', 'failed')
               AND message.sequence < aggregate.last
               AND message.sequence NOT IN (SELECT sequence FROM chosen)
             ORDER BY message.sequence
             LIMIT 1) AS sequence
      FROM aggregate
)
SELECT message.id, message.partition_number, message.aggregate_type, message.aggregate_id, message.message_type,
       message.payload, message.message_id, message.headers, message.exchange, message.routing_key, message.trace,
       coalesce(message.retry_count, 0) AS retry_count, max(:now - coalesce(message.created_at, :now), 0) AS waited,
       (SELECT first.id
          FROM ahead
          JOIN holdfast_outbox_messages AS first ON first.sequence = ahead.sequence
         WHERE ahead.aggregate_type = message.aggregate_type
           AND ahead.aggregate_id = message.aggregate_id
           AND ahead.sequence < message.sequence) AS behind
  FROM chosen
  JOIN holdfast_outbox_messages AS message ON message.sequence = chosen.sequence
 ORDER BY chosen.sequence
