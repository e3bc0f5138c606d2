-- Delivers ends to the jobs that wait for them, and makes those ready that have nothing left to wait for. Jobs are
-- locked in the order of their ids, as in every statement that writes several. An advisory lock serializes this: a
-- second session would only wait for the same parents.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(6041337, 2) AS mine
), ends AS (
    DELETE FROM holdfast.awaited_ends
     WHERE (SELECT mine FROM turn)
       AND child_id IN (SELECT child_id FROM holdfast.awaited_ends LIMIT $1)
    RETURNING child_id
), delivered AS (
    DELETE FROM holdfast.awaited USING ends WHERE awaited.child_id = ends.child_id
    RETURNING awaited.parent_id
), woken AS (
    UPDATE holdfast.jobs AS job
       SET pending = greatest(job.pending - parent.ends, 0),
           retry_after = CASE WHEN NOT job.waiting OR job.pending > parent.ends THEN job.retry_after END,
           waiting = job.waiting AND job.pending > parent.ends,
           updated_at = clock.now
      FROM clock,
           (SELECT parent_id, count(*)::integer AS ends FROM delivered GROUP BY parent_id ORDER BY parent_id) AS parent
     WHERE job.id = parent.parent_id
       AND job.pending > 0
    RETURNING job.queue
)
SELECT (SELECT count(*) FROM ends) AS ends,
       (SELECT count(pg_notify('holdfast', 'ready:' || queue)) FROM (SELECT DISTINCT queue FROM woken) AS queues)
           AS notified
