-- Returns for each blocked route that is to be tried its oldest held message in the relay's partitions, and when no
-- message is held for it any more, none. Of several relays one tries a route at a time: probe_at is moved in the same
-- statement, and a row that another relay has locked is left to it.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), leased AS MATERIALIZED (
    SELECT partition.number
      FROM unnest($1::smallint[], $2::bigint[]) AS lease (number, token)
      JOIN holdfast.outbox_partitions AS partition
        ON partition.number = lease.number AND partition.lease_token = lease.token
), tried AS MATERIALIZED (
    SELECT route, at_capacity
      FROM holdfast.outbox_routes
     WHERE NOT unblocked
       AND probe_at <= (SELECT now FROM clock)
     ORDER BY route
       FOR NO KEY UPDATE SKIP LOCKED
), found AS MATERIALIZED (
    SELECT tried.route AS probed, tried.at_capacity, message.*,
           EXISTS (SELECT FROM holdfast.outbox_messages WHERE held_by = tried.route) AS held
      FROM tried
      LEFT JOIN LATERAL (
           SELECT id, partition_number, aggregate_type, aggregate_id, message_type, payload, message_id, headers,
                  exchange, routing_key, trace, retry_count, created_at
             FROM holdfast.outbox_messages AS first
            WHERE held_by = tried.route
              AND partition_number IN (SELECT number FROM leased)
              AND NOT EXISTS (SELECT FROM holdfast.outbox_messages AS ahead
                               WHERE ahead.aggregate_id = first.aggregate_id
                                 AND ahead.aggregate_type = first.aggregate_type
                                 AND ahead.status IN ('pending', 'failed')
                                 AND ahead.sequence < first.sequence)
            ORDER BY sequence
            LIMIT 1) AS message ON true
), moved AS (
    UPDATE holdfast.outbox_routes
       SET probe_at = clock.now + $3::interval
      FROM clock
     WHERE route IN (SELECT probed FROM found WHERE id IS NOT NULL)
)
SELECT probed, id::text, partition_number, aggregate_type, aggregate_id, message_type, payload::text, message_id,
       headers, exchange, routing_key, trace, coalesce(retry_count, 0) AS retry_count,
       greatest(clock.now - coalesce(created_at, clock.now), interval '0') AS waited, NULL AS behind, at_capacity
  FROM found, clock
 WHERE id IS NOT NULL OR NOT held
