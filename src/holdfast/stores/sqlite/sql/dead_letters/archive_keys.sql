SELECT owner, name, key, fingerprint, created_at
  FROM holdfast_job_keys
 WHERE job_id = :id
