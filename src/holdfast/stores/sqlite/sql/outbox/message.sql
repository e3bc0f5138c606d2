SELECT id, sequence, aggregate_type, aggregate_id, message_type, payload, status, created_at, processed_at,
       coalesce(retry_count, 0) AS retry_count, error_message, message_id, headers, exchange, routing_key, job_id, trace,
       due_at, held_by, note, dead_job_id
  FROM holdfast_outbox_messages
 WHERE id = :id
