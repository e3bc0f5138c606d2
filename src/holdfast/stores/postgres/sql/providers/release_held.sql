-- Makes held jobs ready, the longest held first. SKIP LOCKED gives concurrent sessions different jobs. Their holder
-- stays recorded for the worker that claims them.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), next AS MATERIALIZED (
    SELECT id
      FROM holdfast.jobs
     WHERE held_by = $1
     ORDER BY retry_after, id
     LIMIT $2
       FOR UPDATE SKIP LOCKED
), let_out AS (
    UPDATE holdfast.jobs AS job
       SET held_by = NULL, let_out_by = $1, retry_after = NULL, updated_at = clock.now
      FROM clock, next
     WHERE job.id = next.id
    RETURNING job.queue
)
SELECT (SELECT count(*) FROM let_out) AS jobs,
       (SELECT count(pg_notify('holdfast', 'ready:' || queue)) FROM (SELECT DISTINCT queue FROM let_out) AS queues)
           AS notified
