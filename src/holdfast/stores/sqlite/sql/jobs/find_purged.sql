-- Stubs of purged jobs, newest first; finding.py inserts the conditions.
SELECT id, name, queue, owner, status, priority, attempt, generation, lease_token, 0 AS losses,
       created_at, queued_at, finished_at AS updated_at, '' AS args, started_at, last_attempt,
       NULL AS last_attempt_at, NULL AS retry_after, NULL AS leased_by,
       NULL AS lease_expires_at, finished_at, NULL AS deadline_at, timed_out_at,
       NULL AS late_at, NULL AS late_result, 0 AS cancel_requested, 0 AS waiting, 0 AS pending,
       NULL AS held_by, subject, version, trace, NULL AS result, failure, stage, purged_at
  FROM holdfast_job_stubs
 WHERE true /* filters */
 ORDER BY id DESC
