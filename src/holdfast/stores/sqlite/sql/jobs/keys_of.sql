-- The idempotency keys of jobs, by the index of keys by job.
SELECT job_id, holdfast_job_keys.key
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_job_keys ON job_id = requested.value
