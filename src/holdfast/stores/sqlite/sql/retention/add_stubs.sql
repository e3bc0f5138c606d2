-- Writes the stubs that stand for purged jobs as long as their key or version is taken.
INSERT INTO holdfast_job_stubs (
    id, name, queue, owner, status, priority, attempt, last_attempt, generation, lease_token, created_at, queued_at,
    started_at, finished_at, timed_out_at, subject, version, trace, result, failure, stage, purged_at)
SELECT job.id, job.name, job.queue, job.owner, job.status, job.priority, job.attempt, job.last_attempt, job.generation,
       job.lease_token, job.created_at, job.queued_at, job.started_at, job.finished_at, job.timed_out_at, job.subject,
       job.version, job.trace, job.result, job.failure, job.stage, :now
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_finished AS job ON job.id = requested.value
 WHERE EXISTS (SELECT 1 FROM holdfast_job_keys AS taken WHERE taken.job_id = job.id)
    OR EXISTS (SELECT 1 FROM holdfast_job_versions AS taken
                WHERE (taken.owner, taken.name, taken.subject, taken.version)
                      = (job.owner, job.name, job.subject, job.version)
                  AND taken.job_id = job.id)
    ON CONFLICT (id) DO UPDATE
   SET status = excluded.status, attempt = excluded.attempt, last_attempt = excluded.last_attempt,
       generation = excluded.generation, lease_token = excluded.lease_token, queued_at = excluded.queued_at,
       started_at = excluded.started_at, finished_at = excluded.finished_at, timed_out_at = excluded.timed_out_at,
       purged_at = excluded.purged_at, result = excluded.result, failure = excluded.failure, stage = excluded.stage
