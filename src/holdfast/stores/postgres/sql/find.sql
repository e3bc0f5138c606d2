-- Ids grow with time, so newest first is the primary key read backwards, and a page ends at an id.
(SELECT id::text, name, queue, owner, status, priority, attempt, generation, lease_token, losses,
        created_at, queued_at, updated_at, '' AS args, started_at, last_attempt, last_attempt_at, retry_after, leased_by,
        lease_expires_at, NULL AS finished_at, deadline_at, NULL::timestamptz AS timed_out_at,
       NULL::timestamptz AS late_at, NULL AS late_result, cancel_requested, waiting, pending, held_by, subject, version, trace,
        NULL AS result, NULL AS failure, NULL AS stage
   FROM holdfast.jobs
  WHERE ($1::text IS NULL OR status = $1)
    AND ($2::text IS NULL OR name = $2)
    AND ($3::text IS NULL OR owner = $3)
    AND ($4::text IS NULL OR queue = $4)
    AND ($5::uuid IS NULL OR id < $5)
  ORDER BY jobs.id DESC
  LIMIT $6)
 UNION ALL
(SELECT id::text, name, queue, owner, status, priority, attempt, generation, lease_token, losses,
        created_at, queued_at, finished_at, '', started_at, last_attempt, last_attempt_at, NULL, leased_by,
        NULL, finished_at, deadline_at, timed_out_at, late_at, NULL, false, false, 0, NULL, subject, version, trace, NULL, failure, stage
   FROM holdfast.finished
  WHERE ($1::text IS NULL OR status = $1)
    AND ($2::text IS NULL OR name = $2)
    AND ($3::text IS NULL OR owner = $3)
    AND ($4::text IS NULL OR queue = $4)
    AND ($5::uuid IS NULL OR id < $5)
  ORDER BY finished.id DESC
  LIMIT $6)
 ORDER BY id DESC
 LIMIT $6
