-- Reads live jobs only: ended ones are in another table, and are always more.
SELECT job.queue,
       CASE WHEN job.status = 'processing' THEN 'processing'
            WHEN job.retry_after IS NULL THEN 'ready'
            WHEN job.held_by NOT LIKE E'\n%' THEN 'held'
            WHEN job.held_by IS NOT NULL OR job.waiting THEN 'waiting'
            ELSE 'scheduled' END AS state,
       count(*),
       max(greatest(clock.now - job.updated_at, interval '0'))
  FROM holdfast.jobs AS job, holdfast.clock AS clock
 GROUP BY 1, 2
