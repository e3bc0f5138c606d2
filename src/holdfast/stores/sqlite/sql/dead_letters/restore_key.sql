-- Reserves the key of a restored job again. No row is written if another job has it by now.
INSERT INTO holdfast_job_keys (owner, name, key, job_id, fingerprint, created_at)
VALUES (:owner, :name, :key, :id, :fingerprint, :created_at)
    ON CONFLICT DO UPDATE
   SET job_id = excluded.job_id
 WHERE job_id = excluded.job_id
