-- Extends a worker's leases in one statement. [[id, token], ...]
UPDATE holdfast_jobs
   SET lease_expires_at = :now + :lease, updated_at = :now
 WHERE id IN (SELECT value FROM json_each(:ids))
