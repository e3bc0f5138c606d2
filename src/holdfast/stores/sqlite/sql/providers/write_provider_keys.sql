-- Stores how much of the limits of keys is in use, after outdated_provider_keys.sql in the same transaction. Versions
-- begin with the time, so that a key that was deleted and stored again never has a version that a slow worker has
-- read.
INSERT INTO holdfast_provider_keys (name, key, version, state, expires_at)
SELECT :name, value ->> 0, :now, value ->> 2, value ->> 3 FROM json_each(:keys) WHERE true
    ON CONFLICT (name, key) DO UPDATE
   SET version = version + 1, state = excluded.state, expires_at = excluded.expires_at
