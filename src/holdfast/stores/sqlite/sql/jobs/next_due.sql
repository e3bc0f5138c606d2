-- What is due already was left out by a limit, and is for the next promotion.
SELECT min(retry_after) - :now
  FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
 WHERE status = 'queued' AND retry_after > :now
