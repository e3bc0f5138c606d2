-- [[owner, name, subject, version, ...], ...]
DELETE FROM holdfast_job_versions
 WHERE (owner, name, subject, version) IN (
           SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(:rows))
