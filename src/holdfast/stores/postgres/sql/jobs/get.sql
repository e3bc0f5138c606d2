SELECT id::text, name, queue, owner, status, priority, attempt, generation, lease_token, losses,
       created_at, queued_at, updated_at, args, started_at, last_attempt, last_attempt_at, retry_after, leased_by,
       lease_expires_at, NULL AS finished_at, deadline_at, NULL::timestamptz AS timed_out_at,
       NULL::timestamptz AS late_at, NULL AS late_result, cancel_requested, waiting, pending, held_by, subject, version, trace,
       NULL AS result, NULL AS failure, NULL AS stage, NULL::timestamptz AS purged_at
  FROM holdfast.jobs
  JOIN holdfast.payloads ON job_id = id
 WHERE id = $1::uuid
 UNION ALL
SELECT id::text, name, queue, owner, status, priority, attempt, generation, lease_token, losses,
       created_at, queued_at, finished_at, args, started_at, last_attempt, last_attempt_at, NULL, leased_by,
       NULL, finished_at, deadline_at, timed_out_at, late_at, late_result, false, false, 0, NULL, subject, version, trace, result, failure, stage, NULL
  FROM holdfast.finished
  JOIN holdfast.payloads ON job_id = id
 WHERE id = $1::uuid
 UNION ALL
SELECT id::text, name, queue, owner, status, priority, attempt, generation, lease_token, 0,
       created_at, queued_at, finished_at, '', started_at, last_attempt, NULL, NULL, NULL,
       NULL, finished_at, NULL, timed_out_at, NULL, NULL, false, false, 0, NULL, subject, version, trace, result, failure, stage, purged_at
  FROM holdfast.job_stubs
 WHERE id = $1::uuid
