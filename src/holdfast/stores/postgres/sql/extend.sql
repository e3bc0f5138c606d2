-- Pushes a worker's leases forward, all in one statement; what it no longer holds is not returned.
-- The clock is read once: joined as a subquery it would be asked again for every row.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
)
UPDATE holdfast.jobs AS job
   SET lease_expires_at = clock.now + $3::interval,
       updated_at = clock.now
  FROM clock, unnest($1::text[], $2::bigint[]) AS held (id, token)
 WHERE job.id = held.id::uuid
   AND job.lease_token = held.token
   AND job.leased_by IS NOT NULL
RETURNING job.id::text, job.cancel_requested, coalesce(job.deadline_at <= clock.now, false) AS overdue
