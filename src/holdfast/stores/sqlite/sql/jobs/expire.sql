-- Copies overdue jobs to the finished ones; delete_jobs.sql deletes them from the hot table. The lease of a running job
-- ends here: its token is raised and remembered, so that a result under it can only be kept as late. Each failure has
-- the id of its job in its fingerprint, so that they do not form a group.
INSERT INTO holdfast_finished (
    id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
    created_at, queued_at, finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token,
    leased_by, subject, version, trace, failure, timed_out_at, announces)
SELECT job.id, name, queue, owner, 'failed', priority, attempt, generation,
       lease_token + (status = 'processing'), losses, stages,
       created_at, queued_at, :now, started_at, last_attempt, last_attempt_at, deadline_at,
       CASE status WHEN 'processing' THEN lease_token END,
       leased_by, subject, version, trace, json_set(:failure, '$.fingerprint', 'TIMEOUT:' || name), :now, announces
  FROM json_each(:ids) AS overdue
 CROSS JOIN holdfast_jobs AS job ON job.id = overdue.value
