-- Ids grow with time, so newest first is the primary key read backwards, and a page ends at an id.
SELECT * FROM (
    SELECT id, name, queue, owner, status, priority, attempt, generation, lease_token, losses,
           created_at, queued_at, updated_at, '' AS args, started_at, last_attempt, last_attempt_at, retry_after, leased_by,
           lease_expires_at, NULL AS finished_at, deadline_at, NULL AS timed_out_at, NULL AS late_at,
       NULL AS late_result, cancel_requested, waiting, pending, held_by, subject, version, trace,
           NULL AS result, NULL AS failure, NULL AS stage
      FROM holdfast_jobs
     WHERE (:status IS NULL OR status = :status)
       AND (:name IS NULL OR name = :name)
       AND (:owner IS NULL OR owner = :owner)
       AND (:queue IS NULL OR queue = :queue)
       AND (:before IS NULL OR id < :before)
     ORDER BY id DESC
     LIMIT :limit)
 UNION ALL
SELECT * FROM (
    SELECT id, name, queue, owner, status, priority, attempt, generation, lease_token, losses,
           created_at, queued_at, finished_at, '', started_at, last_attempt, last_attempt_at, NULL, leased_by,
           NULL, finished_at, deadline_at, timed_out_at, late_at, NULL, 0, 0, 0, NULL, subject, version, trace, NULL, failure, stage
      FROM holdfast_finished
     WHERE (:status IS NULL OR status = :status)
       AND (:name IS NULL OR name = :name)
       AND (:owner IS NULL OR owner = :owner)
       AND (:queue IS NULL OR queue = :queue)
       AND (:before IS NULL OR id < :before)
     ORDER BY id DESC
     LIMIT :limit)
 ORDER BY id DESC
 LIMIT :limit
