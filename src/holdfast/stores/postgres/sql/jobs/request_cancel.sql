-- Stores a request for the worker of a running job; the lease and its token do not change.
UPDATE holdfast.jobs
   SET cancel_requested = true, updated_at = holdfast.holdfast_now()
 WHERE id = $1::uuid
   AND status = 'processing'
   AND ($2::text IS NULL OR owner = $2)
RETURNING pg_notify('holdfast', 'cancel:' || id::text)
