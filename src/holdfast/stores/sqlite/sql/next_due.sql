SELECT min(retry_after) - :now
  FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
 WHERE status = 'queued' AND retry_after IS NOT NULL
