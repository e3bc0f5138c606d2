-- The next sweep reclaims the job, with all that belongs to that. A worker that is alive after all, and extends the lease
-- in between, keeps it.
UPDATE holdfast_jobs
   SET lease_expires_at = :now - 1
 WHERE id = :id
   AND status = 'processing'
   AND leased_by = :worker
RETURNING id
