-- Extends all leases of a worker while its event loop is blocked. A lost lease has another holder, or none, and is
-- not restored.
UPDATE holdfast_jobs INDEXED BY holdfast_jobs_leased
   SET lease_expires_at = :now + :lease, updated_at = :now
 WHERE status = 'processing'
   AND leased_by = :worker
