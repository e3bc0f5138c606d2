-- Copies jobs that end to the finished ones; delete_jobs.sql deletes them from the hot table in the same transaction. A
-- token that no longer matches copies nothing. For batches in which no deadline has passed, which are nearly all:
-- finish_overdue.sql checks every row for it, which takes half as long again.
-- [[id, token, status, result, failure, stage], ...]
INSERT INTO holdfast_finished (
    id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
    created_at, queued_at, finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token,
    leased_by, subject, version, trace, result, failure, stage, announces)
SELECT job.id, job.name, job.queue, job.owner, want.value ->> 2, job.priority, job.attempt, job.generation,
       job.lease_token, job.losses, job.stages, job.created_at, job.queued_at, :now, job.started_at,
       job.last_attempt, job.last_attempt_at, job.deadline_at, job.timed_out_token, job.leased_by, job.subject, job.version,
       job.trace, want.value ->> 3, want.value ->> 4, want.value ->> 5, job.announces
  FROM json_each(:batch) AS want
 CROSS JOIN holdfast_jobs AS job ON job.id = want.value ->> 0
 WHERE job.lease_token = want.value ->> 1
   AND job.leased_by IS NOT NULL
