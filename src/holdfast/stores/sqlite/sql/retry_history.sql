-- Writes down what the end and the forgotten stages told, so that the history stays as it was.
INSERT INTO holdfast_job_events (job_id, at, kind, meta)
SELECT id, last_attempt_at, 'processing', json_object('attempt', last_attempt, 'worker', leased_by)
  FROM holdfast_finished WHERE id = :id AND leased_by IS NOT NULL
 UNION ALL
SELECT job_id, stored_at, 'stage',
       json_patch(json_object('stage', CASE call WHEN '#1' THEN name ELSE name || '[' || call || ']' END,
                              'attempt', attempt, 'status', status),
                  json_object('provider', provider))
  FROM holdfast_stages WHERE job_id = :id AND status = 'failed'
 UNION ALL
SELECT id, finished_at, 'expired', CASE WHEN late_at IS NULL THEN '{}' ELSE json_object('late', json('true')) END
  FROM holdfast_finished WHERE id = :id AND timed_out_at IS NOT NULL
 UNION ALL
SELECT id, finished_at, 'failed',
       json_patch(CASE WHEN failure IS NULL THEN '{}'
                       ELSE json_object('error_class', failure ->> 'error_class', 'code', failure ->> 'code',
                                        'message', failure ->> 'message', 'retryable', failure -> 'retryable') END,
                  json_object('stage', stage))
  FROM holdfast_finished WHERE id = :id AND timed_out_at IS NULL
 UNION ALL
SELECT id, :now, 'replayed', json_object('generation', generation + 1) FROM holdfast_finished WHERE id = :id
