-- Returns the routes that are blocked, and those that are unblocked with something left to do: messages to release, or the
-- end of the quiet time.
SELECT route, unblocked
  FROM holdfast_outbox_routes
 WHERE NOT unblocked
    OR NOT at_capacity
    OR probe_at <= :now
    OR EXISTS (SELECT 1 FROM holdfast_outbox_messages INDEXED BY holdfast_outbox_held
                WHERE held_by = route AND status = 'pending' AND held_by IS NOT NULL)
