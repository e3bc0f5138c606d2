-- Notes the workers that were lost with a suspect. A worker that lost several is written as often, which is cheaper than
-- to sort them.
INSERT INTO holdfast_lost_workers (worker, lost_at)
SELECT leased_by, :now
  FROM holdfast_jobs
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND suspicion = 2
    ON CONFLICT (worker) DO UPDATE SET lost_at = excluded.lost_at
