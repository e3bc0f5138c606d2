-- Blocks a route; one that is blocked already stays as it is. One that is unblocked, and still has its row, is blocked again
-- with the messages that it holds.
INSERT INTO holdfast_outbox_routes (route, blocked_at, probe_at, error, at_capacity)
VALUES (:route, :now, :now + :delay, :error, :at_capacity)
    ON CONFLICT (route) DO UPDATE
   SET blocked_at = excluded.blocked_at, probe_at = excluded.probe_at, error = excluded.error, unblocked = 0,
       at_capacity = excluded.at_capacity
 WHERE unblocked
