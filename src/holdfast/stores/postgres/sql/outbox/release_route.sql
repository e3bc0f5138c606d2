-- Releases the oldest messages that an unblocked route has held. Runs with all partitions locked, so that no relay blocks
-- the route again meanwhile; if one has, nothing is released. With the last of them the route is deleted; one that was full
-- only after its quiet time.
WITH released AS (
    UPDATE holdfast.outbox_messages
       SET held_by = NULL
     WHERE id IN (SELECT id FROM holdfast.outbox_messages WHERE held_by = $1 ORDER BY sequence LIMIT $2)
       AND EXISTS (SELECT FROM holdfast.outbox_routes WHERE route = $1 AND unblocked)
    RETURNING id
), deleted AS (
    DELETE FROM holdfast.outbox_routes
     WHERE route = $1
       AND unblocked
       AND (NOT at_capacity OR probe_at <= (SELECT now FROM holdfast.clock))
       AND (SELECT count(*) FROM released) < $2
    RETURNING route
)
SELECT count(*) AS released, EXISTS (SELECT FROM deleted) AS deleted, pg_notify('holdfast', 'message:') FROM released
