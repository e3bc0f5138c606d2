SELECT key, version, state
  FROM holdfast_provider_keys
 WHERE name = :name
   AND key IN (SELECT value FROM json_each(:keys))
