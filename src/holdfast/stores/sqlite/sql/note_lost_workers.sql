-- Notes the workers that were lost with a suspect.
INSERT INTO holdfast_lost_workers (worker, lost_at)
SELECT DISTINCT leased_by, :now
  FROM holdfast_jobs
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND suspicion = 2
    ON CONFLICT (worker) DO UPDATE SET lost_at = excluded.lost_at
