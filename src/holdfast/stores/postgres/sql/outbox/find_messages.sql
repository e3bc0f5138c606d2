-- Finds messages of one status, the newest first. The comment is replaced by conditions, each with its value bound.
SELECT id::text, sequence, aggregate_type, aggregate_id, message_type, payload::text, status, created_at, processed_at,
       coalesce(retry_count, 0) AS retry_count, error_message, message_id, headers, exchange, routing_key,
       job_id::text, trace, due_at, held_by, note, dead_job_id::text
  FROM holdfast.outbox_messages
 WHERE true /* filters */
 ORDER BY created_at DESC, sequence DESC
