-- Spends the attempts of leased jobs that run under suspicion: if their worker is lost now, they are held
-- responsible. The claim has fixed the number of the attempt, so the statement is idempotent.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
)
UPDATE holdfast.jobs AS job
   SET attempt = job.last_attempt, suspicion = 2, updated_at = clock.now
  FROM clock, unnest($1::text[], $2::bigint[]) AS want (id, token)
 WHERE job.id = want.id::uuid
   AND job.lease_token = want.token
   AND job.leased_by IS NOT NULL
RETURNING job.id::text, job.lease_token
