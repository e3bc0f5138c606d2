-- Reads the oldest due messages of the partitions that the relay has leased. Nothing is locked: one relay has a
-- partition at a time, and what it writes is checked again by settle_messages.sql.
-- A message is behind the first unpublished one of its aggregate that is not among the chosen: failed, held, or retried
-- later. As the oldest are chosen, no message that is due can be ahead of a chosen one. There is always a row, for the
-- routes and the time until the next retry.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), leased AS MATERIALIZED (
    SELECT partition.number
      FROM unnest($1::smallint[], $2::bigint[]) AS lease (number, token)
      JOIN holdfast.outbox_partitions AS partition
        ON partition.number = lease.number AND partition.lease_token = lease.token
), chosen AS MATERIALIZED (
    SELECT message.*
      FROM clock, leased, LATERAL (
           (SELECT id, partition_number, aggregate_type, aggregate_id, message_type, payload, message_id, headers,
                   exchange, routing_key, trace, retry_count, created_at, sequence
              FROM holdfast.outbox_messages
             WHERE partition_number = leased.number AND (status = 'pending') IS TRUE AND held_by IS NULL
               AND due_at IS NULL
             ORDER BY sequence
             LIMIT $3)
            UNION ALL
           (SELECT id, partition_number, aggregate_type, aggregate_id, message_type, payload, message_id, headers,
                   exchange, routing_key, trace, retry_count, created_at, sequence
              FROM holdfast.outbox_messages
             WHERE partition_number = leased.number AND (status = 'pending') IS TRUE AND held_by IS NULL
               AND due_at IS NOT NULL AND due_at <= clock.now
             ORDER BY due_at
             LIMIT $3)) AS message
     ORDER BY message.sequence
     LIMIT $3
), ahead AS MATERIALIZED (
    SELECT aggregate.aggregate_type, aggregate.aggregate_id, first.id, first.sequence
      FROM (SELECT aggregate_type, aggregate_id, max(sequence) AS last FROM chosen GROUP BY aggregate_type, aggregate_id)
           AS aggregate,
           LATERAL (
           SELECT id, sequence
             FROM holdfast.outbox_messages
            WHERE aggregate_id = aggregate.aggregate_id
              AND aggregate_type = aggregate.aggregate_type
              AND status IN ('pending', 'failed')
              AND sequence < aggregate.last
              AND sequence NOT IN (SELECT sequence FROM chosen)
            ORDER BY sequence
            LIMIT 1) AS first
), retry AS (
    SELECT min(next.due_at) AS due_at
      FROM clock, leased, LATERAL (
           SELECT due_at
             FROM holdfast.outbox_messages
            WHERE partition_number = leased.number AND (status = 'pending') IS TRUE AND held_by IS NULL
              AND due_at IS NOT NULL AND due_at > clock.now
            ORDER BY due_at
            LIMIT 1) AS next
)
SELECT chosen.id::text, chosen.partition_number, chosen.aggregate_type, chosen.aggregate_id, chosen.message_type,
       chosen.payload::text, chosen.message_id, chosen.headers, chosen.exchange, chosen.routing_key, chosen.trace,
       coalesce(chosen.retry_count, 0) AS retry_count,
       greatest(clock.now - coalesce(chosen.created_at, clock.now), interval '0') AS waited,
       ahead.id::text AS behind,
       ARRAY(SELECT route FROM holdfast.outbox_routes WHERE NOT unblocked) AS blocked,
       ARRAY(SELECT route
               FROM holdfast.outbox_routes
              WHERE unblocked
                AND (NOT at_capacity OR probe_at <= clock.now
                     OR EXISTS (SELECT FROM holdfast.outbox_messages WHERE held_by = route))) AS unblocked,
       retry.due_at - clock.now AS next_due
  FROM clock
 CROSS JOIN retry
  LEFT JOIN chosen ON true
  LEFT JOIN ahead
    ON ahead.aggregate_type = chosen.aggregate_type
   AND ahead.aggregate_id = chosen.aggregate_id
   AND ahead.sequence < chosen.sequence
 ORDER BY chosen.sequence
