-- Deletes the stubs of jobs that ended long ago, with their keys and versions, starting at ($4, $5), and reads at
-- most $3 of them. The time counts from the end of the job: one that lived longer than keys are kept has its key
-- afterwards, too. The key of a job that another job submits begins with that job's id: as long as the submitting job
-- is live it may run again, and must not submit a second time. A stub whose job was restored is no longer needed, and
-- its key belongs to the job.
WITH walked AS MATERIALIZED (
    SELECT id, finished_at
      FROM holdfast.job_stubs
     WHERE (finished_at, id) > ($4::timestamptz, $5::uuid)
       AND finished_at <= (SELECT now FROM holdfast.clock) - $1::interval
     ORDER BY finished_at, id
     LIMIT $3
), old AS MATERIALIZED (
    SELECT stub.id, stub.finished_at, stub.owner, stub.name, stub.subject, stub.version
      FROM walked
      JOIN holdfast.job_stubs AS stub USING (id)
     WHERE NOT EXISTS (SELECT FROM holdfast.jobs WHERE id = stub.id)
       AND NOT EXISTS (SELECT FROM holdfast.finished WHERE id = stub.id)
       AND NOT EXISTS (SELECT
                         FROM holdfast.job_keys AS taken
                         JOIN holdfast.jobs AS parent
                           ON parent.id = CASE WHEN taken.key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:'
                                               THEN left(taken.key, 36)::uuid END
                        WHERE taken.job_id = stub.id)
     ORDER BY stub.finished_at, stub.id
     LIMIT $2
       FOR UPDATE OF stub SKIP LOCKED
), keys AS (
    DELETE FROM holdfast.job_keys AS taken USING old WHERE taken.job_id = old.id
    RETURNING taken.job_id
), versions AS (
    DELETE FROM holdfast.job_versions AS taken
     USING old
     WHERE (taken.owner, taken.name, taken.subject, taken.version) = (old.owner, old.name, old.subject, old.version)
       AND taken.job_id = old.id
    RETURNING taken.job_id
), gone AS (
    DELETE FROM holdfast.job_stubs AS stub USING old WHERE stub.id = old.id
), events AS (
    DELETE FROM holdfast.job_events USING old WHERE job_id = old.id
), reached AS (
    (SELECT finished_at, id FROM old WHERE (SELECT count(*) FROM old) >= $2 ORDER BY finished_at DESC, id DESC LIMIT 1)
     UNION ALL
    (SELECT finished_at, id
       FROM walked
      WHERE (SELECT count(*) FROM walked) >= $3
      ORDER BY finished_at DESC, id DESC
      LIMIT 1)
     LIMIT 1
)
SELECT (SELECT count(*) FROM keys) + (SELECT count(*) FROM versions) AS purged, reached.finished_at, reached.id::text
  FROM (SELECT) AS one
  LEFT JOIN reached ON true
