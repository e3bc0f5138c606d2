SELECT job_id::text, at, kind, meta
  FROM holdfast.job_events
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY job_events.job_id, seq
