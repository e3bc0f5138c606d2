-- Reads what a worker has leased: job, token, and the attempt that the claim counted. The index on leases is small: it
-- holds what runs now. A name belongs to one start of one process, so nobody else's leases are among them.
SELECT id::text, lease_token, last_attempt
  FROM holdfast.jobs
 WHERE status = 'processing'
   AND leased_by = $1
