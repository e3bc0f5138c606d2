-- Reads live jobs only: those that have ended stand elsewhere, and there are always more of them.
SELECT queue,
       CASE WHEN status = 'processing' THEN 'processing'
            WHEN retry_after IS NULL THEN 'ready'
            WHEN held_by NOT LIKE char(10) || '%' THEN 'held'
            WHEN held_by IS NOT NULL OR waiting THEN 'waiting'
            ELSE 'scheduled' END AS state,
       count(*),
       max(:now - min(updated_at), 0)
  FROM holdfast_jobs
 GROUP BY 1, 2
