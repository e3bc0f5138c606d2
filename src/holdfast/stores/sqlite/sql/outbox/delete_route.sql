-- Deletes a route that has released all its messages; one that was full only after its quiet time.
DELETE FROM holdfast_outbox_routes
 WHERE route = :route
   AND unblocked
   AND (NOT at_capacity OR probe_at <= :now)
