-- Extends a worker's leases in one statement; leases that it has lost are not returned. Nor are rows that another
-- session has locked: the statement would wait for them, and all other leases would expire meanwhile. The clock is
-- read once: joined as a subquery it would be evaluated for every row.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), leased AS MATERIALIZED (
    SELECT job.id
      FROM unnest($1::text[], $2::bigint[]) AS held (id, token)
      JOIN holdfast.jobs AS job ON job.id = held.id::uuid
     WHERE job.lease_token = held.token
       AND job.leased_by IS NOT NULL
       FOR UPDATE OF job SKIP LOCKED
)
UPDATE holdfast.jobs AS job
   SET lease_expires_at = clock.now + $3::interval,
       updated_at = clock.now
  FROM clock, leased
 WHERE job.id = leased.id
RETURNING job.id::text, job.cancel_requested, coalesce(job.deadline_at <= clock.now, false) AS overdue
