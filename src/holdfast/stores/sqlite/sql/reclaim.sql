-- Gives jobs back to their queue whose worker let the lease run out. The token is raised, so a worker
-- that wakes up later writes nothing. The attempt stays spent: the crash was in it.
UPDATE holdfast_jobs
   SET status = 'queued',
       lease_token = lease_token + 1,
       losses = losses + 1,
       leased_by = NULL,
       lease_expires_at = NULL,
       updated_at = :now
 WHERE id IN (SELECT value FROM json_each(:ids))
