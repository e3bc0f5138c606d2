SELECT name, version, state FROM holdfast_providers WHERE name IN (SELECT value FROM json_each(:names))
