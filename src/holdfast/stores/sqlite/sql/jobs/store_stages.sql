-- Records stages of claimed jobs; stages that are done or failed do not change.
-- [[id, token, name, call, status, attempt, fingerprint, result, failure, provider, brief_fingerprint], ...]
INSERT INTO holdfast_stages (
    job_id, name, call, status, attempt, generation, lease_token, fingerprint, stored_at, result, failure,
    provider, number, brief_fingerprint)
SELECT job.id, want.value ->> 2, want.value ->> 3, want.value ->> 4, want.value ->> 5, job.generation,
       job.lease_token, want.value ->> 6, :now, want.value ->> 7, want.value ->> 8,
       want.value ->> 9, job.stages, want.value ->> 10
  FROM json_each(:batch) AS want
 CROSS JOIN holdfast_jobs AS job ON job.id = want.value ->> 0
 WHERE true
    ON CONFLICT (job_id, name, call) DO UPDATE
   SET status = excluded.status, attempt = excluded.attempt, generation = excluded.generation,
       lease_token = excluded.lease_token, fingerprint = excluded.fingerprint,
       stored_at = excluded.stored_at, result = excluded.result, failure = excluded.failure,
       provider = excluded.provider, number = excluded.number,
       brief_fingerprint = excluded.brief_fingerprint
 WHERE holdfast_stages.status = 'started'
