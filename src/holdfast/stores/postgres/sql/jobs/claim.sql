-- Takes ready jobs in one statement; SKIP LOCKED keeps two workers off the same row, and the raised lease_token
-- fences the previous holder. The attempt is spent here, so that a crash is counted without a further write. Only a
-- job that has lost its worker before spends its attempt when it starts, in begin.sql: it may have to wait for a
-- slot, and another job may crash the process meanwhile. An attempt that was lost through another job's fault is
-- returned here, where the worker can see whether the job may run again.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), ready AS MATERIALIZED (
    SELECT id
      FROM holdfast.jobs
     WHERE queue = $2
       AND status = 'queued'
       AND retry_after IS NULL
       -- A job that was released because some worker knows its name is left to the workers that know it.
       AND (let_out_by IS NULL OR $5::text[] IS NULL OR let_out_by NOT LIKE E'\n%' OR name = ANY ($5))
     ORDER BY priority DESC, created_at, id
     LIMIT $3
       FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.jobs AS job
   SET status = 'processing',
       attempt = greatest(job.attempt - (job.excused = 1)::integer, 0)
                 + (job.losses = 0 AND job.excused = 0)::integer,
       lease_token = job.lease_token + 1,
       waiting = false,
       leased_by = $1,
       lease_expires_at = clock.now + $4::interval,
       started_at = coalesce(job.started_at, clock.now),
       last_attempt = greatest(job.attempt - (job.excused = 1)::integer, 0) + 1,
       losses = greatest(job.losses - (job.excused = 1)::integer, 0),
       excused = CASE job.excused WHEN 0 THEN 0 ELSE 2 END,
       suspicion = (job.losses > 0 OR job.excused > 0)::integer,
       last_attempt_at = clock.now,
       updated_at = clock.now
  FROM clock, ready, holdfast.payloads AS payload
 WHERE job.id = ready.id
   AND payload.job_id = ready.id
RETURNING job.id::text, job.name, job.queue, job.owner, payload.args, job.last_attempt, job.generation,
          job.lease_token, job.losses, job.stages, job.cancel_requested, job.trace,
          extract(epoch FROM job.deadline_at - clock.now)::float8, job.signals, job.let_out_by,
          job.failed_runs, job.excused > 0
