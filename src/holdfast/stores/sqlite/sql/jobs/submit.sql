-- Stores jobs; submit_payloads.sql stores their arguments in the same transaction.
-- [[id, name, queue, owner, args, priority, delay, run_at, subject, version, trace, deadline,
--   deadline_at, announces], ...]
INSERT INTO holdfast_jobs (
    id, name, queue, owner, priority, created_at, queued_at, updated_at, retry_after, subject, version, trace,
    deadline_at, announces)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 5, :now, :now, :now,
       CASE WHEN value ->> 7 > :now THEN value ->> 7 ELSE :now + (value ->> 6) END,
       value ->> 8, value ->> 9, value ->> 10, coalesce(value ->> 12, :now + (value ->> 11)),
       value ->> 13
  FROM json_each(:batch)
