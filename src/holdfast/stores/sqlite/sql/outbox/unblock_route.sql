-- After it, no relay can hold a message for this route, unless it blocks it again. With a quiet time, a route that was full
-- keeps its row for that long.
UPDATE holdfast_outbox_routes
   SET unblocked = 1, at_capacity = at_capacity AND :quiet IS NOT NULL, probe_at = :now + coalesce(:quiet, 0)
 WHERE route = :route
RETURNING (SELECT count(*) FROM holdfast_outbox_messages INDEXED BY holdfast_outbox_held
            WHERE held_by = :route AND status = 'pending' AND held_by IS NOT NULL), at_capacity
