UPDATE holdfast_outbox_routes SET probe_at = :now + :again WHERE route = :route
