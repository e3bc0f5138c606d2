-- Stores a request for the worker of a running job; the lease and its token do not change.
UPDATE holdfast_jobs
   SET cancel_requested = 1, updated_at = :now
 WHERE id = :id
   AND status = 'processing'
   AND (:owner IS NULL OR owner = :owner)
