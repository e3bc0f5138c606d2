-- Records the workers that were lost with a suspected job. A worker that lost several is written once for each, which
-- is cheaper than sorting them.
INSERT INTO holdfast_lost_workers (worker, lost_at)
SELECT leased_by, :now
  FROM holdfast_jobs
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND suspicion = 2
    ON CONFLICT (worker) DO UPDATE SET lost_at = excluded.lost_at
