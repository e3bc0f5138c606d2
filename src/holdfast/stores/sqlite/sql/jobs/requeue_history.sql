-- Records the run that ends: who ran it since when, and why it was requeued.
-- [[id, token, delay, given_back, kind, meta, seen, awaits, held_by, keeps_losses], ...]
INSERT INTO holdfast_job_events (job_id, at, kind, meta)
SELECT id, at, kind, meta
  FROM (SELECT job.id, job.last_attempt_at AS at, 'processing' AS kind,
               json_object('attempt', job.last_attempt, 'worker', job.leased_by) AS meta, want.key AS ordinal, 1 AS part
          FROM json_each(:batch) AS want
         CROSS JOIN holdfast_jobs AS job ON job.id = want.value ->> 0
         UNION ALL
        SELECT want.value ->> 0, :now, want.value ->> 4, want.value ->> 5, want.key, 2
          FROM json_each(:batch) AS want)
 ORDER BY ordinal, part
