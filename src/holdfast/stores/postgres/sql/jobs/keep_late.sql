-- Keeps results that arrived under the lease which the deadline ended; the first one counts.
UPDATE holdfast.finished AS job
   SET late_at = clock.now, late_result = want.result
  FROM holdfast.clock, unnest($1::text[], $2::bigint[], $3::text[]) AS want (id, token, result)
 WHERE job.id = want.id::uuid
   AND job.timed_out_token = want.token
   AND job.status = 'failed'
   AND job.late_at IS NULL
RETURNING job.id::text, job.timed_out_token
