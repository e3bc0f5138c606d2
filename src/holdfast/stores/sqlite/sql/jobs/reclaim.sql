-- Requeues jobs whose worker let the lease expire. The token is raised, so a worker that resumes later writes
-- nothing. The attempt stays spent: the crash was in it. If a job ran under suspicion in that worker
-- (suspected_workers.sql), it is held responsible, and the others are excused: the next claim returns their attempts.
-- Each is excused once in a row, since the suspected job may not be the cause. A suspected job that was not begun has
-- spent nothing.
UPDATE holdfast_jobs
   SET status = 'queued',
       lease_token = lease_token + 1,
       losses = losses + (suspicion <> 1),
       excused = CASE WHEN suspicion = 0 AND excused = 0 AND leased_by IN (SELECT value FROM json_each(:suspected))
                      THEN 1 ELSE excused END,
       failed_runs = failed_runs + (suspicion = 2 OR (suspicion = 0
                                    AND leased_by NOT IN (SELECT value FROM json_each(:suspected)))),
       suspicion = 0,
       leased_by = NULL,
       lease_expires_at = NULL,
       updated_at = :now
 WHERE id IN (SELECT value FROM json_each(:ids))
