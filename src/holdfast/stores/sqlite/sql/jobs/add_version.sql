INSERT INTO holdfast_job_versions (owner, name, subject, version, job_id, fingerprint, created_at)
VALUES (:owner, :name, :subject, :version, :id, :fingerprint, :now)
