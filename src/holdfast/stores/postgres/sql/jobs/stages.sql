SELECT job_id::text, name, call, status, attempt, fingerprint, brief_fingerprint, result, failure,
       extract(epoch FROM (SELECT now FROM holdfast.clock) - stored_at)::float8 AS age
  FROM holdfast.stages
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY stored_at
