-- Stores one job, as submit.sql does for a batch, without the cost of unnesting lists.
WITH payload AS (
    INSERT INTO holdfast.payloads (job_id, args) VALUES ($1::uuid, $2)
), clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
)
INSERT INTO holdfast.jobs (
    id, name, queue, owner, priority, created_at, queued_at, updated_at, retry_after, subject, version, trace,
    deadline_at)
SELECT $1::uuid, $3, $4, $5, $6, now, now, now,
       CASE WHEN $8::timestamptz > now THEN $8 ELSE now + $7::interval END, $9, $10, $11, now + $12::interval
  FROM clock
RETURNING CASE WHEN $13 THEN pg_notify('holdfast', 'ready:' || queue) END
