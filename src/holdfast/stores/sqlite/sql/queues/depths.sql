-- Reads live jobs only: ended ones are in another table, and are always more. No index has them by queue, so all of
-- them are sorted. States are numbers until then: a million rows are grouped a tenth faster that way.
SELECT queue,
       CASE state WHEN 1 THEN 'processing' WHEN 2 THEN 'ready' WHEN 3 THEN 'held' WHEN 4 THEN 'waiting'
                  ELSE 'scheduled' END,
       jobs,
       max(:now - changed_at, 0)
  FROM (SELECT queue,
               CASE WHEN status = 'processing' THEN 1
                    WHEN retry_after IS NULL THEN 2
                    WHEN held_by IS NULL THEN iif(waiting, 4, 5)
                    WHEN held_by LIKE char(10) || '%' THEN 4
                    ELSE 3 END AS state,
               count(*) AS jobs,
               min(updated_at) AS changed_at
          FROM holdfast_jobs
         GROUP BY 1, 2)
