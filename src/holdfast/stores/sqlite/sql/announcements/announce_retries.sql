-- Announces retries, in the transaction that requeues the jobs and after requeue.sql, which has counted the failed run.
-- [[id, token, delay, given_back, kind, meta, seen, awaits, held_by, keeps_losses], ...]
INSERT INTO holdfast_announcements (job_id, name, kind, generation, attempt, failure, at, due_at)
SELECT job.id, job.name, 'retrying', job.generation, job.failed_runs, want.value ->> 5, :now, :now
  FROM json_each(:batch) AS want
 CROSS JOIN holdfast_jobs AS job ON job.id = want.value ->> 0
 WHERE want.value ->> 4 = 'retry'
   AND job.announces & 16
    ON CONFLICT DO NOTHING
