-- Stores messages in the order of the list. One that is stored already, or whose key is taken, is left out.
-- [[id, aggregate_type, aggregate_id, message_type, payload, message_id, headers, exchange, routing_key, key, job_id,
--   trace], ...]
INSERT INTO holdfast_outbox_messages (
    id, aggregate_type, aggregate_id, message_type, payload, message_id, headers, exchange, routing_key, key, job_id,
    trace, created_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
       value ->> 8, value ->> 9, value ->> 10, value ->> 11, :now
  FROM json_each(:batch)
 WHERE true
 ORDER BY key
ON CONFLICT DO NOTHING
