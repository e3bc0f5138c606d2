-- The first session to raise the alarm also writes the ticket, in one statement. An alarm is named after the kind of
-- its ticket.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), raised AS (
    INSERT INTO holdfast.alarms (name, raised_at) SELECT $1, now FROM clock
        ON CONFLICT DO NOTHING
    RETURNING name, raised_at
), ticket AS (
    INSERT INTO holdfast.tickets (id, kind, raised_at, facts, due_at)
    SELECT 'alarm:' || name || ':' || (extract(epoch FROM raised_at) * 1000000)::bigint, name, raised_at, $2, raised_at
      FROM raised
)
SELECT name FROM raised
