-- Stores how much of the limits of new keys is in use; a key that another session has stored is not changed. Versions
-- begin with the time, so that a key that was deleted and stored again never has a version that a slow worker has
-- read.
INSERT INTO holdfast.provider_keys (name, key, version, state, expires_at)
SELECT $1, want.key, (extract(epoch FROM clock.now) * 1e6)::bigint, want.state, to_timestamp(want.expires)
  FROM holdfast.clock AS clock,
       unnest($2::text[], $3::bigint[], $4::text[], $5::float8[]) AS want (key, version, state, expires)
 ORDER BY want.key
    ON CONFLICT DO NOTHING
RETURNING key
