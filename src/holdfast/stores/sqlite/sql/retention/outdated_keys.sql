-- Scans keys, and returns those that are old and have neither a job nor a stub, as an earlier version purged it;
-- outdated_stubs.sql returns the others.
SELECT taken.owner, taken.name, taken.key, taken.job_id,
       taken.created_at <= :until
       AND NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = taken.job_id)
       AND NOT EXISTS (SELECT 1 FROM holdfast_finished WHERE id = taken.job_id)
       AND NOT EXISTS (SELECT 1 FROM holdfast_job_stubs WHERE id = taken.job_id)
       AND NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = substr(taken.key, 1, 36)) AS unneeded
  FROM holdfast_job_keys AS taken
 WHERE (taken.owner, taken.name, taken.key) > (:owner, :name, :key)
 ORDER BY taken.owner, taken.name, taken.key
 LIMIT :walk
