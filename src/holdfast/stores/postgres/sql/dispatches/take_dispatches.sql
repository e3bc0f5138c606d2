-- Records ready jobs of a queue as dispatched, as many as there is room for. Two sessions may see the same room; a job that
-- the other has recorded meanwhile is left out by the condition of the upsert.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), recorded AS MATERIALIZED (
    SELECT dispatch.job_id,
           job.id IS NOT NULL AS ready,
           clock.now - dispatch.sent_at < $3::interval * 2 ^ least(dispatch.number - 1, 3) AS outstanding
      FROM clock
     CROSS JOIN holdfast.dispatches AS dispatch
      LEFT JOIN holdfast.jobs AS job
        ON job.id = dispatch.job_id AND job.status = 'queued' AND job.retry_after IS NULL
     WHERE dispatch.queue = $1
), outdated AS (
    DELETE FROM holdfast.dispatches
     WHERE job_id IN (SELECT job_id FROM recorded WHERE NOT ready)
), outstanding AS MATERIALIZED (
    SELECT job_id FROM recorded WHERE ready AND outstanding
), due AS MATERIALIZED (
    SELECT id, name
      FROM holdfast.jobs
     WHERE queue = $1
       AND status = 'queued'
       AND retry_after IS NULL
       AND id NOT IN (SELECT job_id FROM outstanding)
       AND NOT EXISTS (SELECT FROM holdfast.paused_queues WHERE queue = $1)
     ORDER BY priority DESC, created_at, id
     LIMIT greatest($2 - (SELECT count(*) FROM outstanding), 0)
       FOR UPDATE SKIP LOCKED
), sent AS (
    INSERT INTO holdfast.dispatches AS dispatch (job_id, queue, sent_at)
    SELECT due.id, $1, clock.now
      FROM due, clock
     ORDER BY due.id  -- one order for every session, so that two cannot deadlock
        ON CONFLICT (job_id) DO UPDATE SET sent_at = excluded.sent_at, number = dispatch.number + 1, queue = excluded.queue
     WHERE excluded.sent_at - dispatch.sent_at >= $3::interval * 2 ^ least(dispatch.number - 1, 3)
    RETURNING dispatch.job_id, dispatch.number
)
SELECT due.id::text AS job_id, due.name, sent.number, (SELECT count(*) FROM outstanding) AS outstanding
  FROM (SELECT 1) AS always
  LEFT JOIN (due JOIN sent ON sent.job_id = due.id) ON true
