-- Runs with all partitions locked: after it, no relay can hold a message for this route, unless it blocks it again. With a
-- quiet time $2, a route that was full keeps its row for that long.
UPDATE holdfast.outbox_routes
   SET unblocked = true, at_capacity = at_capacity AND $2::interval IS NOT NULL,
       probe_at = (SELECT now FROM holdfast.clock) + coalesce($2, interval '0')
 WHERE route = $1
RETURNING (SELECT count(*) FROM holdfast.outbox_messages WHERE held_by = $1) AS held, at_capacity
