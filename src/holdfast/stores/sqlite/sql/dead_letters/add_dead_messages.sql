-- Stores messages as failed jobs that have never run; a trigger writes their letters and tickets.
-- [[id, name, args, failure, trace], ...]
INSERT INTO holdfast_finished (
    id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages, created_at, queued_at,
    finished_at, trace, failure)
SELECT value ->> 0, value ->> 1, 'default', '', 'failed', 0, 0, 1, 0, 0, 0, :now, :now, :now, value ->> 4, value ->> 3
  FROM json_each(:batch)
 ORDER BY value ->> 0
