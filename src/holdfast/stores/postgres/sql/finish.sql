-- Ends claimed jobs: each row moves from the hot table to the finished ones if its token still
-- matches. Joined on the primary key alone: a queue's statistics are always stale, and any
-- further condition tempts the planner into another index. Tells those who wait for a result.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), ended AS (
    DELETE FROM holdfast.jobs AS job
     USING unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[])
           AS want (id, token, result, failure, stage, status)
     WHERE job.id = want.id::uuid
       AND job.lease_token = want.token
       AND job.leased_by IS NOT NULL
    RETURNING job.id, job.name, job.queue, job.owner, coalesce(want.status, ($6::text[])[1]) AS status, job.priority, job.attempt,
              job.generation, job.lease_token, job.losses, job.stages, job.created_at, job.queued_at,
              job.started_at, job.last_attempt, job.last_attempt_at, job.deadline_at, job.timed_out_token, job.leased_by,
              job.subject, job.version, job.trace, want.result, want.failure, want.stage, job.awaited
), kept AS (
    INSERT INTO holdfast.finished (
        id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
        created_at, queued_at, finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token,
        leased_by, subject, version, trace, result, failure, stage)
    SELECT id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
           created_at, queued_at, clock.now, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token,
           leased_by, subject, version, trace, result, failure, stage
      FROM ended, clock
)
SELECT id::text, lease_token, CASE WHEN awaited THEN pg_notify('holdfast', 'finished:' || id::text) END
  FROM ended
