SELECT job_id::text, fingerprint, version
  FROM holdfast.job_versions
 WHERE owner = $1 AND name = $2 AND subject = $3
 ORDER BY version DESC
 LIMIT 1
