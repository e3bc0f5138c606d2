-- Blocks routes; those that are blocked already stay as they are. One that is unblocked, and still has its row, is blocked
-- again with the messages that it holds; alarmed: the alarm about it is still raised. The rows are in the order of the
-- routes, so that two relays cannot deadlock.
WITH quiet AS MATERIALIZED (
    SELECT route FROM holdfast.outbox_routes WHERE route = ANY ($1::text[]) AND unblocked AND at_capacity
), blocked AS (
    INSERT INTO holdfast.outbox_routes AS known (route, blocked_at, probe_at, error, at_capacity)
    SELECT DISTINCT ON (new.route) new.route, clock.now, clock.now + new.delay, new.error, new.at_capacity
      FROM holdfast.clock,
           unnest($1::text[], $2::interval[], $3::text[], $4::boolean[]) AS new (route, delay, error, at_capacity)
     ORDER BY new.route
    ON CONFLICT (route) DO UPDATE
       SET blocked_at = excluded.blocked_at, probe_at = excluded.probe_at, error = excluded.error, unblocked = false,
           at_capacity = excluded.at_capacity
     WHERE known.unblocked
    RETURNING route
)
SELECT route, route IN (SELECT route FROM quiet) AS alarmed FROM blocked
