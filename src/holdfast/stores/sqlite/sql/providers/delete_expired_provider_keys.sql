-- Deletes keys that have expired.
DELETE FROM holdfast_provider_keys
 WHERE (name, key) IN (SELECT name, key
                         FROM holdfast_provider_keys INDEXED BY holdfast_provider_keys_expiring
                        WHERE expires_at < :now
                        ORDER BY expires_at
                        LIMIT :limit)
