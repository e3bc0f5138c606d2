SELECT stored_at, name, call, attempt, status, provider, lease_token, number
  FROM holdfast.stages
 WHERE job_id = $1::uuid
   AND status <> 'started'
 ORDER BY lease_token, number
