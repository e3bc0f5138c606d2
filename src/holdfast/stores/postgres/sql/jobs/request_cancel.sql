-- Leaves a request with the worker of a running job; its lease and token stay as they are.
UPDATE holdfast.jobs
   SET cancel_requested = true, updated_at = holdfast.holdfast_now()
 WHERE id = $1::uuid
   AND status = 'processing'
   AND ($2::text IS NULL OR owner = $2)
RETURNING pg_notify('holdfast', 'cancel:' || id::text)
