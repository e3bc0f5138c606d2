-- Copies jobs that were overdue to the finished ones; remove.sql takes them out of the hot table. The
-- lease of one that ran ends here, its token raised and remembered: a result under it may still be
-- kept as late, and nothing else. Each failure names its job in its fingerprint: they are no group.
INSERT INTO holdfast_finished (
    id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
    created_at, queued_at, finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token,
    leased_by, subject, version, trace, failure, timed_out_at)
SELECT job.id, name, queue, owner, 'failed', priority, attempt, generation,
       lease_token + (status = 'processing'), losses, stages,
       created_at, queued_at, :now, started_at, last_attempt, last_attempt_at, deadline_at,
       CASE status WHEN 'processing' THEN lease_token END,
       leased_by, subject, version, trace, json_set(:failure, '$.fingerprint', 'TIMEOUT:' || name), :now
  FROM json_each(:ids) AS overdue
 CROSS JOIN holdfast_jobs AS job ON job.id = overdue.value
