-- Ends claimed jobs: each row moves from the hot table to the finished ones if its token still matches. Joined on the
-- primary key alone: a queue's statistics are always stale, and any further condition tempts the planner into another
-- index. After its deadline a job has timed out, whatever its own outcome, and its result is kept as late. A job that
-- only its deadline ends is left alone before that. Notifies those who wait for a result; a trigger records the ends
-- that other jobs wait for.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), ended AS (
    DELETE FROM holdfast.jobs AS job
     USING clock, unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::boolean[], $7::text[])
           AS want (id, token, result, failure, stage, if_overdue, status)
     WHERE job.id = want.id::uuid
       AND job.lease_token = want.token
       AND job.leased_by IS NOT NULL
       AND (want.if_overdue IS NOT TRUE OR job.deadline_at <= clock.now)
    RETURNING job.id, job.name, job.queue, job.owner, coalesce(want.status, ($7::text[])[1]) AS status, job.priority, job.attempt,
              job.generation, job.lease_token, job.losses, job.stages, job.created_at, job.queued_at,
              job.started_at, job.last_attempt, job.last_attempt_at, job.deadline_at, job.timed_out_token, job.leased_by,
              job.subject, job.version, job.trace, want.result, want.failure, want.stage, job.awaited,
              coalesce(job.deadline_at <= clock.now, false) AND coalesce(want.status, ($7::text[])[1]) <> 'cancelled' AS late
), kept AS (
    INSERT INTO holdfast.finished (
        id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
        created_at, queued_at, finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token,
        leased_by, subject, version, trace, result, failure, stage, timed_out_at, late_at, late_result)
    SELECT id, name, queue, owner, CASE WHEN late THEN 'failed' ELSE status END, priority, attempt, generation, lease_token, losses, stages,
           created_at, queued_at, clock.now, started_at, last_attempt, last_attempt_at, deadline_at,
           CASE WHEN late THEN lease_token END, leased_by, subject, version, trace,
           CASE WHEN NOT late THEN result END,
           CASE WHEN late THEN jsonb_set($8::text::jsonb, '{fingerprint}', to_jsonb('TIMEOUT:' || name))::text
                ELSE failure END,
           CASE WHEN NOT late THEN stage END, CASE WHEN late THEN clock.now END,
           CASE WHEN late AND result IS NOT NULL THEN clock.now END, CASE WHEN late THEN result END
      FROM ended, clock
)
SELECT id::text, lease_token, late, CASE WHEN awaited THEN pg_notify('holdfast', 'finished:' || id::text) END
  FROM ended
