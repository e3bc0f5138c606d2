SELECT job_id, fingerprint, version
  FROM holdfast_job_versions
 WHERE owner = :owner AND name = :name AND subject = :subject
 ORDER BY version DESC
 LIMIT 1
