-- Records the ends and the deleted stages, so that the history stays complete.
INSERT INTO holdfast_job_events (job_id, at, kind, meta)
SELECT job.id, job.last_attempt_at, 'processing', json_object('attempt', job.last_attempt, 'worker', job.leased_by)
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_finished AS job ON job.id = requested.value
 WHERE job.leased_by IS NOT NULL
 UNION ALL
SELECT stage.job_id, stage.stored_at, 'stage',
       json_patch(json_object('stage', CASE stage.call WHEN '#1' THEN stage.name
                                                       ELSE stage.name || '[' || stage.call || ']' END,
                              'attempt', stage.attempt, 'status', stage.status),
                  json_object('provider', stage.provider))
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_stages AS stage ON stage.job_id = requested.value
 WHERE stage.status = 'failed' OR (:restart AND stage.status = 'done')
 UNION ALL
SELECT job.id, job.finished_at, 'expired',
       CASE WHEN job.late_at IS NULL THEN '{}' ELSE json_object('late', json('true')) END
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_finished AS job ON job.id = requested.value
 WHERE job.timed_out_at IS NOT NULL
 UNION ALL
SELECT job.id, job.finished_at, 'failed',
       json_patch(CASE WHEN job.failure IS NULL THEN '{}'
                       ELSE json_object('error_class', job.failure -> 'error_class', 'code', job.failure -> 'code',
                                        'message', job.failure -> 'message', 'retryable', job.failure -> 'retryable')
                       END,
                  json_object('stage', job.stage))
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_finished AS job ON job.id = requested.value
 WHERE job.timed_out_at IS NULL
 UNION ALL
SELECT job.id, :now, 'replayed', json_patch(json_object('generation', job.generation + 1), :meta)
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_finished AS job ON job.id = requested.value
