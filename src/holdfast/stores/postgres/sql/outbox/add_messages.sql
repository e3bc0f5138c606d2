-- Stores messages in the order of the lists. One that is stored already, or whose key is taken, is left out. Relays are
-- notified when the transaction commits.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), added AS (
    INSERT INTO holdfast.outbox_messages (
        id, aggregate_type, aggregate_id, message_type, payload, message_id, headers, exchange, routing_key, key,
        job_id, trace, created_at)
    SELECT new.id, new.aggregate_type, new.aggregate_id, new.message_type, new.payload::jsonb, new.message_id, new.headers,
           new.exchange, new.routing_key, new.key, new.job_id, new.trace, clock.now
      FROM clock,
           unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                  $9::text[], $10::text[], $11::uuid[], $12::text[]) WITH ORDINALITY
           AS new (id, aggregate_type, aggregate_id, message_type, payload, message_id, headers, exchange, routing_key,
                   key, job_id, trace, number)
     ORDER BY new.number
    ON CONFLICT DO NOTHING
    RETURNING id
)
SELECT id::text, CASE WHEN row_number() OVER () = 1 THEN pg_notify('holdfast', 'message:') END FROM added
