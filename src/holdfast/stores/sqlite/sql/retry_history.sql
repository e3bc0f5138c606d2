INSERT INTO holdfast_job_events (job_id, at, kind, meta)
SELECT id, last_attempt_at, 'processing', json_object('attempt', last_attempt, 'worker', leased_by)
  FROM holdfast_finished WHERE id = :id AND leased_by IS NOT NULL
 UNION ALL
SELECT id, finished_at, 'failed', failure FROM holdfast_finished WHERE id = :id
 UNION ALL
SELECT id, :now, 'replayed', json_object('generation', generation + 1) FROM holdfast_finished WHERE id = :id
