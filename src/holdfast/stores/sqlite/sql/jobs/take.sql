-- Leases the jobs that claimable.sql read. The raised lease_token shuts out whoever held them before;
-- the attempt is spent here, so that a crash needs no further write to be counted. Only a job that has lost its worker
-- before spends it when it is begun, by begin.sql: it may have to wait for its turn, and another one may crash the process
-- meanwhile. An attempt that the last loss took without its fault is given back here, where the worker can tell whether
-- the job may run again.
UPDATE holdfast_jobs
   SET status = 'processing',
       attempt = max(attempt - (excused = 1), 0) + (losses = 0 AND excused = 0),
       lease_token = lease_token + 1,
       waiting = 0,
       leased_by = :worker,
       lease_expires_at = :now + :lease,
       started_at = coalesce(started_at, :now),
       last_attempt = max(attempt - (excused = 1), 0) + 1,
       losses = max(losses - (excused = 1), 0),
       excused = CASE excused WHEN 0 THEN 0 ELSE 2 END,
       suspicion = losses > 0 OR excused > 0,
       last_attempt_at = :now,
       updated_at = :now
 WHERE id IN (SELECT value FROM json_each(:ids))
