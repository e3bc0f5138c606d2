-- Reads by the primary key: the job has all of its columns.
SELECT taken.owner, taken.name, taken.subject, taken.version, taken.fingerprint, taken.created_at
  FROM holdfast_finished AS job
  JOIN holdfast_job_versions AS taken USING (owner, name, subject, version)
 WHERE job.id = :id
   AND taken.job_id = job.id
