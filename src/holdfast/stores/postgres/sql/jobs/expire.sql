-- Ends jobs whose deadline has passed, whatever their state. The lease of a running job ends here: its token is
-- raised and remembered, so that a result under it can only be kept as late. Triggers write the letters in the order
-- of the rows, which is that of the ids, the order in which every statement locks them. Each failure has the id of
-- its job in its fingerprint, so that they do not form a group.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), overdue AS MATERIALIZED (
    SELECT id
      FROM holdfast.jobs
     WHERE deadline_at <= (SELECT now FROM clock)
     ORDER BY deadline_at
     LIMIT $1
       FOR UPDATE SKIP LOCKED
), ended AS (
    DELETE FROM holdfast.jobs AS job
     USING overdue
     WHERE job.id = overdue.id
    RETURNING job.*
), kept AS (
    INSERT INTO holdfast.finished (
        id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
        created_at, queued_at, finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token,
        leased_by, subject, version, trace, failure, timed_out_at)
    SELECT id, name, queue, owner, 'failed', priority, attempt, generation,
           lease_token + (status = 'processing')::integer, losses, stages,
           created_at, queued_at, clock.now, started_at, last_attempt, last_attempt_at, deadline_at,
           CASE status WHEN 'processing' THEN lease_token END,
           leased_by, subject, version, trace,
           jsonb_set($2::text::jsonb, '{fingerprint}', to_jsonb('TIMEOUT:' || name))::text, clock.now
      FROM ended, clock
     ORDER BY id
)
SELECT id::text, CASE WHEN awaited THEN pg_notify('holdfast', 'finished:' || id::text) END
  FROM ended
