-- Deletes the versions of stubs, by the primary key: the stub has all of its columns.
DELETE FROM holdfast_job_versions
 WHERE (owner, name, subject, version) IN (
           SELECT stub.owner, stub.name, stub.subject, stub.version
             FROM json_each(:ids) AS requested
            CROSS JOIN holdfast_job_stubs AS stub ON stub.id = requested.value)
   AND job_id IN (SELECT value FROM json_each(:ids))
