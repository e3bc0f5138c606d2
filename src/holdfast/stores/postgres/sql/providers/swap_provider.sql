-- Replaces a provider's state if its version is still the one that was read, 0 if there was none, and writes its
-- events in the same statement. Of two sessions that have read the same version, the second waits for the first and
-- then finds another version.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), replaced AS (
    UPDATE holdfast.providers
       SET version = version + 1, state = $3, updated_at = clock.now
      FROM clock
     WHERE name = $1
       AND version = $2
    RETURNING name
), added AS (
    INSERT INTO holdfast.providers (name, version, state, updated_at)
    SELECT $1, 1, $3, now FROM clock WHERE $2 = 0
        ON CONFLICT DO NOTHING
    RETURNING name
), swapped AS (
    SELECT name FROM replaced UNION ALL SELECT name FROM added
), history AS (
    INSERT INTO holdfast.provider_events (name, at, kind, meta)
    SELECT swapped.name, clock.now, event.kind, event.meta
      FROM swapped, clock, unnest($4::text[], $5::text[]) WITH ORDINALITY AS event (kind, meta, ordinal)
     ORDER BY event.ordinal
), forgotten AS (
    -- The last thousand events of a provider are kept.
    DELETE FROM holdfast.provider_events
     WHERE cardinality($4::text[]) > 0
       AND name = (SELECT name FROM swapped)
       AND seq <= (SELECT seq FROM holdfast.provider_events WHERE name = $1 ORDER BY seq DESC OFFSET 1000 LIMIT 1)
)
SELECT name FROM swapped
