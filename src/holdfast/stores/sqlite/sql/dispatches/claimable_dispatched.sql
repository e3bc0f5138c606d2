-- Reads the jobs to claim whose dispatches have arrived, as claimable.sql does. A job that is not ready, or whose queue was
-- paused meanwhile, is not taken.
{claims}
  FROM (SELECT job.*, payload.args
          FROM json_each(:ids) AS dispatched
         CROSS JOIN holdfast_jobs AS job ON job.id = dispatched.value
         CROSS JOIN holdfast_payloads AS payload ON payload.job_id = job.id
         WHERE job.status = 'queued'
           AND job.retry_after IS NULL
           AND NOT EXISTS (SELECT 1 FROM holdfast_paused_queues AS pause WHERE pause.queue = job.queue)
           AND (job.let_out_by IS NULL OR :knows IS NULL OR job.let_out_by NOT LIKE char(10) || '%'
                OR job.name IN (SELECT value FROM json_each(:knows))))
