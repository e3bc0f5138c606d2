-- Stores one message, as add_messages.sql does for a batch, without the cost of unnesting lists.
INSERT INTO holdfast.outbox_messages (
    id, aggregate_type, aggregate_id, message_type, payload, message_id, headers, exchange, routing_key, key, job_id,
    trace, created_at)
SELECT $1::uuid, $2, $3, $4, $5::text::jsonb, $6, $7, $8, $9, $10, $11::uuid, $12, now
  FROM holdfast.clock
ON CONFLICT DO NOTHING
RETURNING id::text, pg_notify('holdfast', 'message:')
