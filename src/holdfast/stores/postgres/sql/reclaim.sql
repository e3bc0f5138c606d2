-- Gives jobs back to their queue whose worker let the lease run out. The token is raised, so a
-- worker that wakes up later writes nothing. The attempt stays spent: the crash was in it.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), lost AS MATERIALIZED (
    SELECT id, leased_by
      FROM holdfast.jobs
     WHERE status = 'processing'
       AND lease_expires_at < (SELECT now FROM clock)
     ORDER BY lease_expires_at
     LIMIT $1
       FOR UPDATE SKIP LOCKED
), back AS (
    UPDATE holdfast.jobs AS job
       SET status = 'queued',
           lease_token = job.lease_token + 1,
           losses = job.losses + 1,
           leased_by = NULL,
           lease_expires_at = NULL,
           updated_at = clock.now
      FROM clock, lost
     WHERE job.id = lost.id
    RETURNING job.id, job.last_attempt, job.losses, job.last_attempt_at, lost.leased_by
), history AS (
    INSERT INTO holdfast.job_events (job_id, at, kind, meta)
    SELECT id, last_attempt_at, 'processing', json_build_object('attempt', last_attempt, 'worker', leased_by)::text
      FROM back
     UNION ALL
    SELECT id, clock.now, 'queued', json_build_object('reason', 'lease lost', 'losses', losses)::text
      FROM back, clock
)
SELECT id::text FROM back
