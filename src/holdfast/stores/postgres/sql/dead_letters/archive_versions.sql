-- Reads by the primary key: the job has all of its columns.
SELECT taken.job_id::text, taken.owner, taken.name, taken.subject, taken.version, taken.fingerprint, taken.created_at
  FROM holdfast.finished AS job
  JOIN holdfast.job_versions AS taken USING (owner, name, subject, version)
 WHERE job.id = ANY ($1::uuid[])
   AND taken.job_id = job.id
 ORDER BY job.id
