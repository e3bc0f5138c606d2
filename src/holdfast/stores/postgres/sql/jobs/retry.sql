-- Requeues failed jobs as new generations: one that its owner retries, or those that a plan replays. Token and
-- generation continue from their last values: a worker of the old generation still matches nothing. A lease has an
-- odd token; that of a job which its deadline ended is even already, and belongs to no lease. A job has as much time
-- as it had before, unless the plan keeps its deadline. Finished stages stay, unless the plan runs them again; failed
-- ones are deleted. A row then records the generation in which the job started from the beginning: what it had
-- submitted before is no longer its own.
-- Their letters move with them. Those of a plan are locked and validated; an owner needs none, and the row that is
-- deleted here keeps others from retrying the job. If a generation is given, only that one is retried: the job may
-- have failed again since it was read.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), failed AS (
    DELETE FROM holdfast.finished AS job
     USING unnest($1::uuid[]) AS requested (id)
     WHERE job.id = requested.id
       AND job.status = 'failed'
       AND ($2::text IS NULL OR job.owner = $2)
       AND ($7::integer IS NULL OR job.generation = $7)
    RETURNING job.*
), history AS (
    INSERT INTO holdfast.job_events (job_id, at, kind, meta)
    SELECT id, last_attempt_at, 'processing', json_build_object('attempt', last_attempt, 'worker', leased_by)::text
      FROM failed
     WHERE leased_by IS NOT NULL
     UNION ALL
    SELECT job_id, stored_at, 'stage',
           json_strip_nulls(json_build_object(
               'stage', CASE call WHEN '#1' THEN stages.name ELSE stages.name || '[' || call || ']' END,
               'attempt', stages.attempt, 'status', stages.status, 'provider', stages.provider))::text
      FROM failed
      JOIN holdfast.stages ON job_id = id AND (stages.status = 'failed' OR ($5::boolean AND stages.status = 'done'))
     UNION ALL
    SELECT id, finished_at, 'expired', CASE WHEN late_at IS NULL THEN '{}' ELSE '{"late": true}' END
      FROM failed
     WHERE timed_out_at IS NOT NULL
     UNION ALL
    SELECT id, finished_at, 'failed',
           (SELECT coalesce(json_object_agg(key, value), '{}')
              FROM json_each((coalesce(failure::jsonb, '{}') || jsonb_build_object('stage', stage))::json)
             WHERE key IN ('error_class', 'code', 'message', 'retryable', 'stage')
               AND json_typeof(value) <> 'null')::text
      FROM failed
     WHERE timed_out_at IS NULL
     UNION ALL
    SELECT id, clock.now, 'replayed',
           json_strip_nulls(json_build_object('generation', generation + 1, 'plan', $3::text, 'actor', $4::text))::text
      FROM failed, clock
), forgotten AS (
    DELETE FROM holdfast.stages
     USING failed
     WHERE job_id = failed.id
       AND ($5 OR (stages.status <> 'done' AND stages.name <> '@restarted'))
), moved AS (
    UPDATE holdfast.dead_letters AS letter
       SET version = letter.version + 1, updated_at = clock.now, plan = $3,
           state = CASE WHEN $3 IS NULL THEN 'closed' ELSE 'replaying' END,
           notes = CASE WHEN $3 IS NULL THEN 'retried by its owner' ELSE letter.notes END,
           replays = letter.replays + CASE WHEN $3 IS NULL THEN 0 ELSE 1 END
      FROM failed, clock
     WHERE letter.job_id = failed.id
    RETURNING letter.job_id, letter.state
), steps AS (
    INSERT INTO holdfast.letter_steps (job_id, at, state, actor, reason, meta)
    SELECT job_id, clock.now, state, coalesce($4, 'owner'), CASE WHEN $3 IS NULL THEN 'retried by its owner' ELSE '' END,
           json_strip_nulls(json_build_object('plan', $3, 'restart', CASE WHEN $5 THEN true END))::text
      FROM moved, clock
), back AS (
    INSERT INTO holdfast.jobs (
        id, name, queue, owner, priority, generation, lease_token, stages, created_at, queued_at, updated_at,
        started_at, deadline_at, subject, version, trace, signals, announces)
    SELECT id, name, queue, owner, priority, generation + 1, lease_token + lease_token % 2,
           CASE WHEN $5 THEN 1 ELSE stages END, created_at, clock.now, clock.now,
           started_at, CASE WHEN $6::boolean THEN deadline_at ELSE clock.now + (deadline_at - queued_at) END,
           subject, version, trace, (SELECT count(*) FROM holdfast.signals WHERE job_id = id), announces
      FROM failed, clock
    RETURNING id, queue, generation, lease_token
), restarted AS (
    INSERT INTO holdfast.stages (job_id, name, call, status, attempt, generation, lease_token, fingerprint, stored_at)
    SELECT id, '@restarted', '#' || generation, 'started', 0, generation, lease_token, '', clock.now
      FROM back, clock
     WHERE $5
)
SELECT id::text, pg_notify('holdfast', 'ready:' || queue) FROM back
