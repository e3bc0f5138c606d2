-- Requeues jobs whose worker let the lease expire. The token is raised, so a worker that resumes later writes
-- nothing. The attempt stays spent: the crash was in it. If a job ran under suspicion in that worker, it is held
-- responsible, and the others are excused: the next claim returns their attempts. Each is excused once in a row,
-- since the suspected job may not be the cause. The leases of a worker expire one after the other, so its name is
-- kept for a while. A suspected job that was not begun has spent nothing.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), lost AS MATERIALIZED (
    SELECT id, leased_by, suspicion
      FROM holdfast.jobs
     WHERE status = 'processing'
       AND lease_expires_at < (SELECT now FROM clock)
     ORDER BY lease_expires_at
     LIMIT $1
       FOR UPDATE SKIP LOCKED
), workers AS MATERIALIZED (
    SELECT DISTINCT leased_by AS name FROM lost
), suspected AS MATERIALIZED (
    SELECT name
      FROM workers, clock
     -- Values, not EXISTS: the planner would read all suspected jobs to look up a few workers among them.
     WHERE (SELECT true FROM holdfast.jobs AS suspect
             WHERE suspect.suspicion = 2 AND suspect.leased_by = workers.name LIMIT 1)
        OR (SELECT true FROM holdfast.lost_workers AS earlier
             WHERE earlier.worker = workers.name AND earlier.lost_at > clock.now - interval '1 hour')
), forgotten AS (
    DELETE FROM holdfast.lost_workers
     USING clock
     WHERE lost_at < clock.now - interval '1 hour'
       AND EXISTS (SELECT FROM suspected)
       AND worker NOT IN (SELECT name FROM workers)
), noted AS (
    INSERT INTO holdfast.lost_workers (worker, lost_at)
    SELECT DISTINCT leased_by, clock.now
      FROM lost, clock
     WHERE suspicion = 2
     ORDER BY leased_by  -- one order for every session, so that two cannot deadlock
        ON CONFLICT (worker) DO UPDATE SET lost_at = excluded.lost_at
), back AS (
    UPDATE holdfast.jobs AS job
       SET status = 'queued',
           lease_token = job.lease_token + 1,
           losses = job.losses + (job.suspicion <> 1)::integer,
           excused = CASE WHEN job.suspicion = 0 AND job.excused = 0 AND job.leased_by IN (SELECT name FROM suspected)
                          THEN 1 ELSE job.excused END,
           failed_runs = job.failed_runs + (job.suspicion = 2 OR (job.suspicion = 0
                                              AND job.leased_by NOT IN (SELECT name FROM suspected)))::integer,
           suspicion = 0,
           leased_by = NULL,
           lease_expires_at = NULL,
           updated_at = clock.now
      FROM clock, lost
     WHERE job.id = lost.id
    RETURNING job.id, job.last_attempt, job.losses, job.last_attempt_at, lost.leased_by, job.excused = 1 AS excused
), history AS (
    INSERT INTO holdfast.job_events (job_id, at, kind, meta)
    SELECT id, last_attempt_at, 'processing', json_build_object('attempt', last_attempt, 'worker', leased_by)::text
      FROM back
     UNION ALL
    SELECT id, clock.now, 'queued',
           json_strip_nulls(json_build_object('reason', 'lease lost', 'losses', losses,
                                              'excused', CASE WHEN excused THEN true END))::text
      FROM back, clock
)
SELECT id::text FROM back
