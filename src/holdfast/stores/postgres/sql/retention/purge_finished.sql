-- Deletes ended jobs, starting at the id $4, and reads at most $3 of them. There is no index by the time of the end:
-- every job that ends would pay for it. But ids contain the time of their creation, so no job that is younger than
-- the limit ended before it, and the scan stops there. An id without a time sorts as one of a far year; those are
-- read, too. Failed jobs are not purged here: they are deleted with their letter, after that was archived; one that
-- failed before there were letters stays. SKIP LOCKED gives concurrent sessions different jobs, and leaves a job
-- alone that is being retried.
WITH age AS MATERIALIZED (
    SELECT now - $1::interval AS oldest,
           rpad(lpad(to_hex(greatest(extract(epoch FROM now - $1::interval) * 1000 + 1, 0)::bigint), 12, '0'), 32, '0')::uuid AS bound
      FROM holdfast.clock
), walked AS MATERIALIZED (
    (SELECT id
       FROM holdfast.finished
      WHERE id > $4::uuid AND id < (SELECT bound FROM age)
      ORDER BY id
      LIMIT $3)
     UNION ALL
    (SELECT id
       FROM holdfast.finished
      WHERE id > $4::uuid AND id >= '10000000-0000-0000-0000-000000000000'
      ORDER BY id
      LIMIT $3)
     LIMIT $3
), old AS MATERIALIZED (
    SELECT job.id
      FROM age, walked
      JOIN holdfast.finished AS job USING (id)
     WHERE job.finished_at <= age.oldest
       AND job.status <> 'failed'
       AND NOT EXISTS (SELECT FROM holdfast.dead_letters WHERE job_id = job.id)
       AND NOT EXISTS (SELECT FROM holdfast.awaited WHERE child_id = job.id)
       AND NOT EXISTS (SELECT FROM holdfast.awaited_ends WHERE child_id = job.id)
       AND NOT EXISTS (SELECT FROM holdfast.announcements WHERE job_id = job.id)
     ORDER BY job.id
     LIMIT $2
       FOR UPDATE OF job SKIP LOCKED
), gone AS (
    DELETE FROM holdfast.finished AS job USING old WHERE job.id = old.id
    RETURNING job.*
), stubs AS (
    -- Stubs stand for jobs as long as their key or version is taken.
    INSERT INTO holdfast.job_stubs AS stub (
        id, name, queue, owner, status, priority, attempt, last_attempt, generation, lease_token, created_at, queued_at,
        started_at, finished_at, timed_out_at, subject, version, trace, result, failure, stage, purged_at)
    SELECT id, name, queue, owner, status, priority, attempt, last_attempt, generation, lease_token, created_at, queued_at,
        started_at, finished_at, timed_out_at, subject, version, trace, result, failure, stage, clock.now
      FROM gone, holdfast.clock AS clock
     WHERE EXISTS (SELECT FROM holdfast.job_keys AS taken WHERE taken.job_id = gone.id)
        OR EXISTS (SELECT FROM holdfast.job_versions AS taken
                    WHERE (taken.owner, taken.name, taken.subject, taken.version)
                          = (gone.owner, gone.name, gone.subject, gone.version)
                      AND taken.job_id = gone.id)
        ON CONFLICT (id) DO UPDATE
       SET status = excluded.status, attempt = excluded.attempt, last_attempt = excluded.last_attempt,
           generation = excluded.generation, lease_token = excluded.lease_token, queued_at = excluded.queued_at,
           started_at = excluded.started_at, finished_at = excluded.finished_at, timed_out_at = excluded.timed_out_at,
           purged_at = excluded.purged_at, result = excluded.result, failure = excluded.failure, stage = excluded.stage
), payloads AS (
    DELETE FROM holdfast.payloads USING gone WHERE job_id = gone.id
), stages AS (
    DELETE FROM holdfast.stages USING gone WHERE job_id = gone.id
), events AS (
    DELETE FROM holdfast.job_events USING gone WHERE job_id = gone.id
), signals AS (
    DELETE FROM holdfast.signals USING gone WHERE job_id = gone.id
)
SELECT (SELECT count(*) FROM gone) AS purged,
       CASE WHEN (SELECT count(*) FROM gone) >= $2 THEN (SELECT id FROM gone ORDER BY id DESC LIMIT 1)::text
            WHEN (SELECT count(*) FROM walked) >= $3 THEN (SELECT id FROM walked ORDER BY id DESC LIMIT 1)::text
       END AS reached
