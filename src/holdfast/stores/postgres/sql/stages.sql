SELECT job_id::text, name, call, status, attempt, fingerprint, result, failure
  FROM holdfast.stages
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY stored_at
