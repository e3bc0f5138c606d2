SELECT stored_at, name, call, attempt, status, provider, lease_token, number
  FROM holdfast_stages
 WHERE job_id = :id AND status <> 'started'
 ORDER BY lease_token, number
