INSERT INTO holdfast_job_keys (owner, name, key, job_id, fingerprint, created_at)
VALUES (:owner, :name, :key, :id, :fingerprint, :now)
