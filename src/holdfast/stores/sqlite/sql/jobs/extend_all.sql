-- Pushes all leases of a worker forward, while its event loop cannot. A lease that was lost has another holder's name,
-- or none, and is not brought back.
UPDATE holdfast_jobs INDEXED BY holdfast_jobs_leased
   SET lease_expires_at = :now + :lease, updated_at = :now
 WHERE status = 'processing'
   AND leased_by = :worker
