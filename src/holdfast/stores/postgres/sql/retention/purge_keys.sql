-- Deletes keys whose job is gone without a stub, as an earlier version purged it; purge_stubs.sql deletes the others.
-- Starts at the key ($4, $5, $6), and reads at most $3 of them: they are sorted by key, and most may be young. The
-- key of a job that another job submits begins with that job's id: as long as the submitting job is live it may run
-- again, and must not submit a second time.
WITH walked AS MATERIALIZED (
    SELECT owner, name, key, job_id, created_at
      FROM holdfast.job_keys
     WHERE (owner, name, key) > ($4::text, $5::text, $6::text)
     ORDER BY owner, name, key
     LIMIT $3
), old AS MATERIALIZED (
    SELECT owner, name, key, job_id
      FROM walked
     WHERE created_at <= (SELECT now FROM holdfast.clock) - $1::interval
       AND NOT EXISTS (SELECT FROM holdfast.jobs WHERE id = walked.job_id)
       AND NOT EXISTS (SELECT FROM holdfast.finished WHERE id = walked.job_id)
       AND NOT EXISTS (SELECT FROM holdfast.job_stubs WHERE id = walked.job_id)
       AND NOT EXISTS (SELECT FROM holdfast.jobs
                        WHERE id = CASE WHEN walked.key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:'
                                        THEN left(walked.key, 36)::uuid END)
     ORDER BY owner, name, key
     LIMIT $2
), gone AS (
    DELETE FROM holdfast.job_keys AS taken
     USING old
     WHERE (taken.owner, taken.name, taken.key) = (old.owner, old.name, old.key)
       AND taken.job_id = old.job_id  -- otherwise another job has the key by now
    RETURNING taken.owner, taken.name, taken.key
), reached AS (
    (SELECT owner, name, key
       FROM gone
      WHERE (SELECT count(*) FROM gone) >= $2
      ORDER BY owner DESC, name DESC, key DESC
      LIMIT 1)
     UNION ALL
    (SELECT owner, name, key
       FROM walked
      WHERE (SELECT count(*) FROM walked) >= $3
      ORDER BY owner DESC, name DESC, key DESC
      LIMIT 1)
     LIMIT 1
)
SELECT (SELECT count(*) FROM gone) AS purged, reached.owner, reached.name, reached.key
  FROM (SELECT) AS one
  LEFT JOIN reached ON true
