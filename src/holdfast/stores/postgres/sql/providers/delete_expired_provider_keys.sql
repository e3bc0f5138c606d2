-- Deletes keys that have expired. SKIP LOCKED: a key that is being written is in use again.
DELETE FROM holdfast.provider_keys
 WHERE (name, key) IN (SELECT name, key
                         FROM holdfast.provider_keys
                        WHERE expires_at < (SELECT now FROM holdfast.clock)
                        ORDER BY expires_at
                        LIMIT $1
                          FOR UPDATE SKIP LOCKED)
RETURNING key
