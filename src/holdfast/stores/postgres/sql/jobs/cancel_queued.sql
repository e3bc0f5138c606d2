-- Ends a job that is not running. The delete locks the row: if a claim came first, no row matches.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), ended AS (
    DELETE FROM holdfast.jobs
     WHERE id = $1::uuid
       AND status = 'queued'
       AND ($2::text IS NULL OR owner = $2)
    RETURNING *
), kept AS (
    INSERT INTO holdfast.finished (
        id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
        created_at, queued_at, finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token,
        leased_by, subject, version, trace)
    SELECT id, name, queue, owner, 'cancelled', priority, attempt, generation, lease_token, losses, stages,
           created_at, queued_at, clock.now, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token,
           NULL, subject, version, trace
      FROM ended, clock
)
SELECT id::text, CASE WHEN awaited THEN pg_notify('holdfast', 'finished:' || id::text) END
  FROM ended
