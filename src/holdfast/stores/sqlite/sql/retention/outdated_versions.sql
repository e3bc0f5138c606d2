-- Scans versions, and returns those that are old and have neither a job nor a stub, as outdated_keys.sql does for
-- keys.
SELECT taken.owner, taken.name, taken.subject, taken.version,
       taken.created_at <= :until
       AND NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = taken.job_id)
       AND NOT EXISTS (SELECT 1 FROM holdfast_finished WHERE id = taken.job_id)
       AND NOT EXISTS (SELECT 1 FROM holdfast_job_stubs WHERE id = taken.job_id) AS unneeded
  FROM holdfast_job_versions AS taken
 WHERE (taken.owner, taken.name, taken.subject, taken.version) > (:owner, :name, :subject, :version)
 ORDER BY taken.owner, taken.name, taken.subject, taken.version
 LIMIT :walk
