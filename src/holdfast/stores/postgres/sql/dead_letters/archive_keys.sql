SELECT job_id::text, owner, name, key, fingerprint, created_at
  FROM holdfast.job_keys
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY job_keys.job_id
