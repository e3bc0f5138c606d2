-- Jobs that are due already were left out by a limit; the next promotion takes them.
SELECT min(retry_after) - :now
  FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
 WHERE status = 'queued' AND retry_after > :now
