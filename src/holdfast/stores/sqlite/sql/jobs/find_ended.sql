-- Jobs that have ended, newest first, by the index that fits the conditions, which finding.py inserts.
SELECT id, name, queue, owner, status, priority, attempt, generation, lease_token, losses,
       created_at, queued_at, finished_at AS updated_at, '' AS args, started_at, last_attempt, last_attempt_at,
       NULL AS retry_after, leased_by, NULL AS lease_expires_at, finished_at, deadline_at,
       timed_out_at, late_at, NULL AS late_result, 0 AS cancel_requested, 0 AS waiting, 0 AS pending,
       NULL AS held_by, subject, version, trace, NULL AS result, failure, stage, NULL AS purged_at
  FROM holdfast_finished
 WHERE true /* filters */
 ORDER BY id DESC
