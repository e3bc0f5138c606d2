-- Sets the attempts that leased jobs have spent. The count is absolute, so sending it again changes nothing. They come in
-- the order of their ids, in which everybody locks jobs.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
)
UPDATE holdfast.jobs AS job
   SET attempt = want.attempt, updated_at = clock.now
  FROM clock, unnest($1::text[], $2::bigint[], $3::integer[]) AS want (id, token, attempt)
 WHERE job.id = want.id::uuid
   AND job.lease_token = want.token
   AND job.leased_by IS NOT NULL
RETURNING job.id::text, job.lease_token
