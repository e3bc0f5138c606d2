-- Returns the blocked routes that are to be tried, each with whether messages are held for it, and whether it is full.
SELECT route,
       EXISTS (SELECT 1 FROM holdfast_outbox_messages INDEXED BY holdfast_outbox_held
                WHERE held_by = route AND status = 'pending' AND held_by IS NOT NULL), at_capacity
  FROM holdfast_outbox_routes
 WHERE NOT unblocked
   AND probe_at <= :now
 ORDER BY route
