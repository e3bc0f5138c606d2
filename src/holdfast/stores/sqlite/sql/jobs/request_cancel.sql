-- Leaves a request with the worker of a running job; its lease and token stay as they are.
UPDATE holdfast_jobs
   SET cancel_requested = 1, updated_at = :now
 WHERE id = :id
   AND status = 'processing'
   AND (:owner IS NULL OR owner = :owner)
