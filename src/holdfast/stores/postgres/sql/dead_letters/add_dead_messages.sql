-- Stores messages as failed jobs that have never run; a trigger writes their letters and tickets. The rows are in the
-- order of their ids, in which every statement locks them.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), dead AS MATERIALIZED (
    SELECT id, name, args, failure, trace
      FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[]) AS dead (id, name, args, failure, trace)
), payload AS (
    INSERT INTO holdfast.payloads (job_id, args) SELECT id, args FROM dead
)
INSERT INTO holdfast.finished (
    id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages, created_at, queued_at,
    finished_at, trace, failure)
SELECT id, name, 'default', '', 'failed', 0, 0, 1, 0, 0, 0, clock.now, clock.now, clock.now, trace, failure
  FROM dead, clock
 ORDER BY id
