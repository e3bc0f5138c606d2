-- Deletes versions whose job is gone, as purge_keys.sql does for keys.
WITH walked AS MATERIALIZED (
    SELECT owner, name, subject, version, job_id, created_at
      FROM holdfast.job_versions
     WHERE (owner, name, subject, version) > ($4::text, $5::text, $6::text, $7::bigint)
     ORDER BY owner, name, subject, version
     LIMIT $3
), old AS MATERIALIZED (
    SELECT owner, name, subject, version, job_id
      FROM walked
     WHERE created_at <= (SELECT now FROM holdfast.clock) - $1::interval
       AND NOT EXISTS (SELECT FROM holdfast.jobs WHERE id = walked.job_id)
       AND NOT EXISTS (SELECT FROM holdfast.finished WHERE id = walked.job_id)
       AND NOT EXISTS (SELECT FROM holdfast.job_stubs WHERE id = walked.job_id)
     ORDER BY owner, name, subject, version
     LIMIT $2
), gone AS (
    DELETE FROM holdfast.job_versions AS taken
     USING old
     WHERE (taken.owner, taken.name, taken.subject, taken.version) = (old.owner, old.name, old.subject, old.version)
       AND taken.job_id = old.job_id  -- otherwise another job has the version by now
    RETURNING taken.owner, taken.name, taken.subject, taken.version
), reached AS (
    (SELECT owner, name, subject, version
       FROM gone
      WHERE (SELECT count(*) FROM gone) >= $2
      ORDER BY owner DESC, name DESC, subject DESC, version DESC
      LIMIT 1)
     UNION ALL
    (SELECT owner, name, subject, version
       FROM walked
      WHERE (SELECT count(*) FROM walked) >= $3
      ORDER BY owner DESC, name DESC, subject DESC, version DESC
      LIMIT 1)
     LIMIT 1
)
SELECT (SELECT count(*) FROM gone) AS purged, reached.owner, reached.name, reached.subject, reached.version
  FROM (SELECT) AS one
  LEFT JOIN reached ON true
