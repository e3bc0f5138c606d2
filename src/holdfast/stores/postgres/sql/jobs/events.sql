SELECT at, kind, meta
  FROM holdfast.job_events
 WHERE job_id = $1::uuid
 ORDER BY seq
