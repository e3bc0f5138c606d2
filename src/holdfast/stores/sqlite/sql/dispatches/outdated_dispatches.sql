-- Forgets the dispatches of jobs that are not ready any more.
DELETE FROM holdfast_dispatches
 WHERE queue = :queue
   AND NOT EXISTS (SELECT 1 FROM holdfast_jobs AS job
                    WHERE job.id = job_id AND job.status = 'queued' AND job.retry_after IS NULL)
