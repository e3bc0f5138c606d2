-- Replaces how much of the limits of keys is in use, for keys whose version is still the one that was read. Rows are
-- locked in the order of their keys, so that two sessions cannot deadlock.
WITH want AS MATERIALIZED (
    SELECT key, version, state, expires
      FROM unnest($2::text[], $3::bigint[], $4::text[], $5::float8[]) AS want (key, version, state, expires)
), locked AS MATERIALIZED (
    SELECT stored.key
      FROM holdfast.provider_keys AS stored, want
     WHERE stored.name = $1
       AND stored.key = want.key
       AND stored.version = want.version
     ORDER BY stored.key
       FOR UPDATE OF stored
)
UPDATE holdfast.provider_keys AS stored
   SET version = stored.version + 1, state = want.state, expires_at = to_timestamp(want.expires)
  FROM want, locked
 WHERE stored.name = $1
   AND stored.key = want.key
   AND locked.key = want.key
RETURNING stored.key
