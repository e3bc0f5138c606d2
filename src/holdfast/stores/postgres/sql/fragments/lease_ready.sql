-- Leases the jobs in `ready` to the worker $1 for $2, and returns them as claims. The statement before it names the clock.
UPDATE holdfast.jobs AS job
   SET status = 'processing',
       attempt = greatest(job.attempt - (job.excused = 1)::integer, 0)
                 + (job.losses = 0 AND job.excused = 0)::integer,
       lease_token = job.lease_token + 1,
       waiting = false,
       leased_by = $1,
       lease_expires_at = clock.now + $2::interval,
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
