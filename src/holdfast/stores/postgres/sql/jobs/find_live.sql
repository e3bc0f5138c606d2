-- Live jobs, newest first: ids grow with time, so that is the primary key read backwards, and a page ends at an id.
-- finding.py inserts the conditions and appends the limit.
SELECT id::text, name, queue, owner, status, priority, attempt, generation, lease_token, losses,
       created_at, queued_at, updated_at, '' AS args, started_at, last_attempt, last_attempt_at, retry_after, leased_by,
       lease_expires_at, NULL::timestamptz AS finished_at, deadline_at, NULL::timestamptz AS timed_out_at,
       NULL::timestamptz AS late_at, NULL AS late_result, cancel_requested, waiting, pending, held_by, subject, version, trace,
       NULL AS result, NULL AS failure, NULL AS stage, NULL::timestamptz AS purged_at
  FROM holdfast.jobs
 WHERE true /* filters */
 ORDER BY jobs.id DESC
