SELECT name, call, status, attempt, generation, lease_token, fingerprint, brief_fingerprint, number, stored_at, result,
       failure, provider
  FROM holdfast_stages
 WHERE job_id = :id
 ORDER BY stored_at, name, call
