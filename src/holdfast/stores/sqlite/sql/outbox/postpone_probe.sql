-- Writes why a probe was refused, and when the next one is due.
UPDATE holdfast_outbox_routes
   SET probe_at = :now + :delay, error = :error, at_capacity = :at_capacity
 WHERE route = :route
   AND NOT unblocked
