-- Deletes locked letters, with their tickets that were notified and with their jobs that are still failed. A job that
-- is live again, or has completed since, stays. The waits of the deleted jobs are deleted; the waits of other jobs
-- for them stay, since their parents must still be notified. Waits that another session is deleting are skipped.
WITH gone AS (
    DELETE FROM holdfast.finished WHERE id = ANY ($1::uuid[]) AND status = 'failed'
    RETURNING *
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
), letters AS (
    DELETE FROM holdfast.dead_letters WHERE job_id = ANY ($1::uuid[])
), steps AS (
    DELETE FROM holdfast.letter_steps WHERE job_id = ANY ($1::uuid[])
), tickets AS (
    DELETE FROM holdfast.tickets WHERE job_id = ANY ($1::uuid[]) AND told_at IS NOT NULL
), originals AS (
    DELETE FROM holdfast.original_args WHERE job_id = ANY ($1::uuid[])
), payloads AS (
    DELETE FROM holdfast.payloads USING gone WHERE job_id = gone.id
), stages AS (
    DELETE FROM holdfast.stages USING gone WHERE job_id = gone.id
), events AS (
    DELETE FROM holdfast.job_events USING gone WHERE job_id = gone.id
), signals AS (
    DELETE FROM holdfast.signals USING gone WHERE job_id = gone.id
), waits AS MATERIALIZED (
    SELECT child_id, parent_id
      FROM gone
      JOIN holdfast.awaited ON parent_id = gone.id
       FOR UPDATE OF awaited SKIP LOCKED
)
DELETE FROM holdfast.awaited USING waits
 WHERE awaited.child_id = waits.child_id
   AND awaited.parent_id = waits.parent_id
