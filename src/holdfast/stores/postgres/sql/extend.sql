-- Pushes a worker's leases forward, all in one statement; what it no longer holds is not returned.
UPDATE holdfast.jobs AS job
   SET lease_expires_at = clock.now + $3::interval,
       updated_at = clock.now
  FROM (SELECT holdfast.holdfast_now() AS now) AS clock,
       unnest($1::text[], $2::bigint[]) AS held (id, token)
 WHERE job.id = held.id::uuid
   AND job.lease_token = held.token
   AND job.leased_by IS NOT NULL
RETURNING job.id::text, job.cancel_requested
