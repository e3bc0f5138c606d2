-- Counts the keys of a batch [[key, version, state, expires], ...] that have changed since they were read.
SELECT count(*)
  FROM json_each(:keys) AS want
  LEFT JOIN holdfast_provider_keys AS stored ON stored.name = :name AND stored.key = want.value ->> 0
 WHERE coalesce(stored.version, 0) <> want.value ->> 1
