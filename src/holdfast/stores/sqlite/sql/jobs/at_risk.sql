-- Live jobs whose deadline is near or past, the nearest first.
SELECT id, name, queue, owner, status, priority, attempt, generation, lease_token, losses,
       created_at, queued_at, updated_at, '' AS args, started_at, last_attempt, last_attempt_at, retry_after, leased_by,
       lease_expires_at, NULL AS finished_at, deadline_at, NULL AS timed_out_at, NULL AS late_at,
       NULL AS late_result, cancel_requested, waiting, pending, held_by, subject, version, trace,
       NULL AS result, NULL AS failure, NULL AS stage
  FROM holdfast_jobs INDEXED BY holdfast_jobs_deadline
 WHERE deadline_at IS NOT NULL
   AND deadline_at <= :now + :at_risk
   AND (:status IS NULL OR status = :status)
   AND (:name IS NULL OR name = :name)
   AND (:owner IS NULL OR owner = :owner)
   AND (:queue IS NULL OR queue = :queue)
 ORDER BY deadline_at, id
 LIMIT :limit
