INSERT INTO holdfast_job_events (job_id, at, kind, meta)
SELECT id, at, kind, meta
  FROM (SELECT id, last_attempt_at AS at, 'processing' AS kind,
               json_object('attempt', last_attempt, 'worker', leased_by) AS meta, 1 AS part
          FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(:ids))
         UNION ALL
        SELECT id, :now, 'queued',
               CASE WHEN suspicion = 0 AND excused = 0 AND leased_by IN (SELECT value FROM json_each(:suspected))
                    THEN json_object('reason', 'lease lost', 'losses', losses + 1, 'excused', json('true'))
                    ELSE json_object('reason', 'lease lost', 'losses', losses + (suspicion <> 1)) END, 2
          FROM holdfast_jobs WHERE id IN (SELECT value FROM json_each(:ids)))
 ORDER BY id, part
