-- Reads the jobs to claim as one row of JSON, so that the interpreter's lock is taken once, not once per job. Runs in
-- the same immediate transaction as claim.sql, so no other writer comes between.
{claims}
  FROM (SELECT job.*, payload.args
          FROM holdfast_jobs AS job INDEXED BY holdfast_jobs_ready
         CROSS JOIN holdfast_payloads AS payload ON payload.job_id = job.id
         WHERE job.queue = :queue
           AND job.status = 'queued'
           AND job.retry_after IS NULL
           -- A job that was released because some worker knows its name is left to the workers that know it.
           AND (job.let_out_by IS NULL OR :knows IS NULL OR job.let_out_by NOT LIKE char(10) || '%'
                OR job.name IN (SELECT value FROM json_each(:knows)))
         ORDER BY job.priority DESC, job.created_at, job.id
         LIMIT :limit)
