-- Puts claimed jobs back into their queue, after a failure or untouched. The token is raised, so the
-- worker that let go can write nothing more. A job that was never begun keeps its row of losses.
UPDATE holdfast_jobs AS job
   SET status = 'queued',
       attempt = job.attempt - (want.value ->> 3),
       lease_token = job.lease_token + 1,
       losses = CASE WHEN want.value ->> 4 = 'queued' AND want.value ->> 3 = 0 THEN job.losses ELSE 0 END,
       leased_by = NULL,
       lease_expires_at = NULL,
       retry_after = :now + (want.value ->> 2),
       updated_at = :now
  FROM json_each(:batch) AS want
 WHERE job.id = want.value ->> 0
