-- Returns a worker's leases: job, token, and the attempt that the claim counted. The index on leases is small: it
-- contains only running jobs. A name belongs to one start of one process, so no other worker's leases are among them.
SELECT json_group_array(json_array(id, lease_token, last_attempt))
  FROM holdfast_jobs INDEXED BY holdfast_jobs_leased
 WHERE status = 'processing'
   AND leased_by = :worker
