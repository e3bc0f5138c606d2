INSERT INTO holdfast.job_versions (owner, name, subject, version, job_id, fingerprint, created_at)
VALUES ($1, $2, $3, $4, $5::uuid, $6, holdfast.holdfast_now())
