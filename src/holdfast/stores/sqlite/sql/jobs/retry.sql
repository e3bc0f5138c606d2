-- Requeues failed jobs as a new generation. Token and generation continue from their last values: a worker of the old
-- generation still matches nothing. A lease has an odd token; that of a job which its deadline ended is even already,
-- and belongs to no lease. They have as much time as they had before, unless they are to keep their deadline.
INSERT INTO holdfast_jobs (
    id, name, queue, owner, priority, generation, lease_token, stages, created_at, queued_at, updated_at,
    started_at, deadline_at, subject, version, trace, signals, announces)
SELECT job.id, job.name, job.queue, job.owner, job.priority, job.generation + 1, job.lease_token + job.lease_token % 2,
       CASE WHEN :restart THEN 1 ELSE job.stages END, job.created_at, :now, :now, job.started_at,
       CASE WHEN :same_deadline THEN job.deadline_at ELSE :now + (job.deadline_at - job.queued_at) END,
       job.subject, job.version, job.trace,
       (SELECT count(*) FROM holdfast_signals WHERE job_id = job.id), job.announces
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_finished AS job ON job.id = requested.value
 WHERE job.status = 'failed'
