-- Copies a job that is not running to the finished ones; delete_jobs.sql deletes it from the hot table.
INSERT INTO holdfast_finished (
    id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
    created_at, queued_at, finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token,
    subject, version, trace, announces)
SELECT id, name, queue, owner, 'cancelled', priority, attempt, generation, lease_token, losses, stages,
       created_at, queued_at, :now, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token,
       subject, version, trace, announces
  FROM holdfast_jobs
 WHERE id = :id
   AND status = 'queued'
   AND (:owner IS NULL OR owner = :owner)
