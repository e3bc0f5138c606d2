-- Stores one job, as submit.sql does for a batch, without the cost of unnesting lists.
WITH payload AS (
    INSERT INTO holdfast.payloads (job_id, args) VALUES ($1::uuid, $2)
), clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
)
INSERT INTO holdfast.jobs (
    id, name, queue, owner, priority, announces, created_at, queued_at, updated_at, retry_after, subject, version, trace,
    deadline_at)
SELECT $1::uuid, $3, $4, $5, $6, $7, now, now, now,
       CASE WHEN $9::timestamptz > now THEN $9 ELSE now + $8::interval END, $10, $11, $12,
       coalesce($14::timestamptz, now + $13::interval)
  FROM clock
RETURNING CASE WHEN $15 THEN pg_notify('holdfast', 'ready:' || queue) END
