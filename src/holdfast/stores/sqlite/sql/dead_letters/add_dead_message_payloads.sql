-- Stores the arguments of the jobs that add_dead_messages.sql stores.
-- [[id, name, args, failure, trace], ...]
INSERT INTO holdfast_payloads (job_id, args)
SELECT value ->> 0, value ->> 2
  FROM json_each(:batch)
