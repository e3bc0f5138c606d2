SELECT stored_at, name, call, attempt, status, provider
  FROM holdfast_stages
 WHERE job_id = :id AND status <> 'started'
 ORDER BY stored_at
