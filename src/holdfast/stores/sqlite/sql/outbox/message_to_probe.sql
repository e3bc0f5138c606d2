-- Returns the oldest message that is held for a route in the partitions [[number, token], ...], and is the first
-- unpublished one of its aggregate.
SELECT message.id, message.partition_number, message.aggregate_type, message.aggregate_id, message.message_type,
       message.payload, message.message_id, message.headers, message.exchange, message.routing_key, message.trace,
       coalesce(message.retry_count, 0) AS retry_count, max(:now - coalesce(message.created_at, :now), 0) AS waited,
       NULL AS behind
  FROM holdfast_outbox_messages AS message INDEXED BY holdfast_outbox_held
 WHERE message.held_by = :route
   AND message.status = 'pending' AND message.held_by IS NOT NULL
   AND EXISTS (SELECT 1 FROM json_each(:leases) WHERE value ->> 0 = message.partition_number)
   AND NOT EXISTS (SELECT 1 FROM holdfast_outbox_messages AS ahead INDEXED BY holdfast_outbox_unpublished
                    WHERE ahead.aggregate_id = message.aggregate_id
                      AND ahead.aggregate_type = message.aggregate_type
                      AND ahead.status IN ('pending', 'failed')
                      AND ahead.sequence < message.sequence)
 ORDER BY message.sequence
 LIMIT 1
