-- Live jobs whose deadline is near or past, the nearest first.
SELECT id::text, name, queue, owner, status, priority, attempt, generation, lease_token, losses,
       created_at, queued_at, updated_at, '' AS args, started_at, last_attempt, last_attempt_at, retry_after, leased_by,
       lease_expires_at, NULL AS finished_at, deadline_at, NULL::timestamptz AS timed_out_at,
       NULL::timestamptz AS late_at, NULL AS late_result, cancel_requested, waiting, pending, held_by, subject, version, trace,
       NULL AS result, NULL AS failure, NULL AS stage
  FROM holdfast.jobs
 WHERE deadline_at <= (SELECT now FROM holdfast.clock) + $6::interval
   AND ($1::text IS NULL OR status = $1)
   AND ($2::text IS NULL OR name = $2)
   AND ($3::text IS NULL OR owner = $3)
   AND ($4::text IS NULL OR queue = $4)
 ORDER BY deadline_at, id
 LIMIT $5
