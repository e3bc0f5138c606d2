-- Restores a failed job, unless it exists. A concurrent restore of the same id waits here and then inserts nothing.
INSERT INTO holdfast.finished (
    id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages, created_at, queued_at,
    finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token, leased_by, subject, version,
    trace, failure, stage, timed_out_at, late_at, result, late_result, announces, runs, announced_again)
SELECT id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages, created_at, queued_at,
       finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token, leased_by, subject, version,
       trace, failure, stage, timed_out_at, late_at, result, late_result, coalesce(announces, 0), coalesce(runs, 0),
       coalesce(announced_again, 0)
  FROM json_populate_record(NULL::holdfast.finished, $1::json) AS job
 WHERE NOT EXISTS (SELECT FROM holdfast.jobs WHERE jobs.id = job.id)
   AND NOT EXISTS (SELECT FROM holdfast.dead_letters WHERE job_id = job.id)
    ON CONFLICT DO NOTHING
RETURNING id::text
