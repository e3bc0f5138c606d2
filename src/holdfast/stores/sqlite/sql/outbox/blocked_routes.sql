SELECT route, blocked_at, probe_at, error,
       (SELECT count(*) FROM holdfast_outbox_messages INDEXED BY holdfast_outbox_held
         WHERE held_by = route AND status = 'pending' AND held_by IS NOT NULL) AS held
  FROM holdfast_outbox_routes
 WHERE NOT unblocked
 ORDER BY blocked_at, route
