SELECT job_id::text, number, name, data
  FROM holdfast.signals
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY number
