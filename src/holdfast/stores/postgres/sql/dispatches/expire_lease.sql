-- The next sweep reclaims the job, with all that belongs to that. A worker that is alive after all, and extends the lease
-- in between, keeps it.
UPDATE holdfast.jobs
   SET lease_expires_at = clock.now - interval '1 microsecond'
  FROM holdfast.clock AS clock
 WHERE id = $1
   AND status = 'processing'
   AND leased_by = $2
RETURNING id
