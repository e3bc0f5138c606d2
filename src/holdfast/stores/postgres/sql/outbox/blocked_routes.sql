SELECT route, blocked_at, probe_at, error,
       (SELECT count(*) FROM holdfast.outbox_messages WHERE held_by = route) AS held
  FROM holdfast.outbox_routes
 WHERE NOT unblocked
 ORDER BY blocked_at, route
