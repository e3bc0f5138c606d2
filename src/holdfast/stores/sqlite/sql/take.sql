-- Leases the jobs that claimable.sql read. The raised lease_token shuts out whoever held them before;
-- the attempt is spent here, so that a crash needs no further write to be counted.
UPDATE holdfast_jobs
   SET status = 'processing',
       attempt = attempt + 1,
       lease_token = lease_token + 1,
       waiting = 0,
       leased_by = :worker,
       lease_expires_at = :now + :lease,
       started_at = coalesce(started_at, :now),
       last_attempt = attempt + 1,
       last_attempt_at = :now,
       updated_at = :now
 WHERE id IN (SELECT value FROM json_each(:ids))
