-- [[owner, name, key, ...], ...]
DELETE FROM holdfast_job_keys
 WHERE (owner, name, key) IN (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:rows))
