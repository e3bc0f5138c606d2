SELECT stored_at, name, call, attempt, status, provider
  FROM holdfast.stages
 WHERE job_id = $1::uuid
   AND status <> 'started'
 ORDER BY stored_at
