-- Puts claimed jobs back into their queue, after a failure or untouched. The token is raised, so the
-- worker that let go can write nothing more.
UPDATE holdfast_jobs AS job
   SET status = 'queued',
       attempt = job.attempt - (want.value ->> 3),
       lease_token = job.lease_token + 1,
       losses = 0,
       leased_by = NULL,
       lease_expires_at = NULL,
       retry_after = :now + (want.value ->> 2),
       updated_at = :now
  FROM json_each(:batch) AS want
 WHERE job.id = want.value ->> 0
