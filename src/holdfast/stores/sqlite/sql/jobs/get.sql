SELECT id, name, queue, owner, status, priority, attempt, generation, lease_token, losses,
       created_at, queued_at, updated_at, args, started_at, last_attempt, last_attempt_at, retry_after, leased_by,
       lease_expires_at, NULL AS finished_at, deadline_at, NULL AS timed_out_at, NULL AS late_at,
       NULL AS late_result, cancel_requested, waiting, pending, held_by, subject, version, trace,
       NULL AS result, NULL AS failure, NULL AS stage, NULL AS purged_at
  FROM holdfast_jobs
  JOIN holdfast_payloads ON job_id = id
 WHERE id = :id
 UNION ALL
SELECT id, name, queue, owner, status, priority, attempt, generation, lease_token, losses,
       created_at, queued_at, finished_at, args, started_at, last_attempt, last_attempt_at, NULL, leased_by,
       NULL, finished_at, deadline_at, timed_out_at, late_at, late_result, 0, 0, 0, NULL, subject, version, trace, result, failure, stage, NULL
  FROM holdfast_finished
  JOIN holdfast_payloads ON job_id = id
 WHERE id = :id
 UNION ALL
SELECT id, name, queue, owner, status, priority, attempt, generation, lease_token, 0,
       created_at, queued_at, finished_at, '', started_at, last_attempt, NULL, NULL, NULL,
       NULL, finished_at, NULL, timed_out_at, NULL, NULL, 0, 0, 0, NULL, subject, version, trace, result, failure, stage, purged_at
  FROM holdfast_job_stubs
 WHERE id = :id
