-- Leases the jobs that claimable.sql read. The raised lease_token fences the previous holder; the attempt is spent
-- here, so that a crash is counted without a further write. Only a job that has lost its worker before spends its
-- attempt when it starts, in begin.sql: it may have to wait for a slot, and another job may crash the process
-- meanwhile. An attempt that was lost through another job's fault is returned here, where the worker can see whether
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
