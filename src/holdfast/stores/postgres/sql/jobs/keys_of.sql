-- The idempotency keys of jobs, by the index of keys by job.
SELECT job_id::text, key
  FROM holdfast.job_keys
 WHERE job_id = ANY ($1::uuid[])
