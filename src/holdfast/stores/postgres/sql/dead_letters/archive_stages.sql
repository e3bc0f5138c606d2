SELECT job_id::text, name, call, status, attempt, generation, lease_token, fingerprint, brief_fingerprint, number,
       stored_at, result, failure, provider
  FROM holdfast.stages
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY stages.job_id, stored_at, name, call
