-- Takes ready jobs in one statement; SKIP LOCKED keeps two workers off the same row, and the
-- raised lease_token shuts out whoever held the job before. The attempt is spent here, so that
-- a crash needs no further write to be counted.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), ready AS MATERIALIZED (
    SELECT id
      FROM holdfast.jobs
     WHERE queue = $2
       AND status = 'queued'
       AND retry_after IS NULL
       -- What a worker has let out because it knows the name is left to those that know it.
       AND (let_out_by IS NULL OR $5::text[] IS NULL OR let_out_by <> E'\n' || name OR name = ANY ($5))
     ORDER BY priority DESC, created_at, id
     LIMIT $3
       FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.jobs AS job
   SET status = 'processing',
       attempt = job.attempt + 1,
       lease_token = job.lease_token + 1,
       waiting = false,
       leased_by = $1,
       lease_expires_at = clock.now + $4::interval,
       started_at = coalesce(job.started_at, clock.now),
       last_attempt = job.attempt + 1,
       last_attempt_at = clock.now,
       updated_at = clock.now
  FROM clock, ready, holdfast.payloads AS payload
 WHERE job.id = ready.id
   AND payload.job_id = ready.id
RETURNING job.id::text, job.name, job.queue, job.owner, payload.args, job.attempt, job.generation,
          job.lease_token, job.losses, job.stages, job.cancel_requested, job.trace,
          extract(epoch FROM job.deadline_at - clock.now)::float8, job.signals, job.let_out_by
