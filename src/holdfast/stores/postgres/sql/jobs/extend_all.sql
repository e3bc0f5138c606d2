-- Extends all leases of a worker while its event loop is blocked. A lost lease has another holder, or none, and is
-- not restored. Locked rows are skipped: the blocked loop may have left a transaction open, and would have to end it
-- before this statement could continue.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), leased AS MATERIALIZED (
    SELECT id
      FROM holdfast.jobs
     WHERE status = 'processing'
       AND leased_by = $1
       FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.jobs AS job
   SET lease_expires_at = clock.now + $2::interval,
       updated_at = clock.now
  FROM clock, leased
 WHERE job.id = leased.id
RETURNING job.id
