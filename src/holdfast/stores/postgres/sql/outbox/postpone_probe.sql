-- Writes why a probe was refused, and when the next one is due.
UPDATE holdfast.outbox_routes
   SET probe_at = clock.now + $2::interval, error = $3, at_capacity = $4
  FROM holdfast.clock
 WHERE route = $1
   AND NOT unblocked
