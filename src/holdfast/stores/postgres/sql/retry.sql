-- Brings a failed job back as a new generation. Token and generation go on from where they were:
-- a worker of the old generation still matches nothing. A lease has an odd token; that of a job which its
-- deadline ended is even already, and no lease's. It has as much time as it had before. Finished stages stay,
-- failed ones go.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), failed AS (
    DELETE FROM holdfast.finished
     WHERE id = $1::uuid
       AND status = 'failed'
       AND ($2::text IS NULL OR owner = $2)
    RETURNING *
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
      JOIN holdfast.stages ON job_id = id AND stages.status = 'failed'
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
    SELECT id, clock.now, 'replayed', json_build_object('generation', generation + 1)::text
      FROM failed, clock
), forgotten AS (
    DELETE FROM holdfast.stages WHERE job_id = $1::uuid AND status <> 'done' AND EXISTS (SELECT FROM failed)
)
INSERT INTO holdfast.jobs (
    id, name, queue, owner, priority, generation, lease_token, stages, created_at, queued_at, updated_at,
    started_at, deadline_at, subject, version, trace, signals)
SELECT id, name, queue, owner, priority, generation + 1, lease_token + lease_token % 2, stages, created_at, clock.now, clock.now,
       started_at, clock.now + (deadline_at - queued_at), subject, version, trace,
       (SELECT count(*) FROM holdfast.signals WHERE job_id = id)
  FROM failed, clock
RETURNING pg_notify('holdfast', 'ready:' || queue)
