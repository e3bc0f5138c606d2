SELECT stored_at, name, call, attempt, status
  FROM holdfast.stages
 WHERE job_id = $1::uuid
   AND status <> 'started'
 ORDER BY stored_at
