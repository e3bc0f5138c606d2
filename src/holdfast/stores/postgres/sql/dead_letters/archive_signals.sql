SELECT job_id::text, number, name, data, sent_at
  FROM holdfast.signals
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY signals.job_id, number
