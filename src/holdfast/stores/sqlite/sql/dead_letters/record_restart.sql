-- Records the generation in which a job started from the beginning: what it had submitted before is no longer its
-- own.
INSERT INTO holdfast_stages (job_id, name, call, status, attempt, generation, lease_token, fingerprint, stored_at)
SELECT job.id, '@restarted', '#' || job.generation, 'started', 0, job.generation, job.lease_token, '', :now
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_jobs AS job ON job.id = requested.value
