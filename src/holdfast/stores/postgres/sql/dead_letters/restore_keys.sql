-- Reserves the keys of a restored job again, and returns those that belong to it: another job may have a key by now.
-- A concurrent submission with the same key waits here, or this statement waits for it.
INSERT INTO holdfast.job_keys AS taken (owner, name, key, job_id, fingerprint, created_at)
SELECT owner, name, key, $1::uuid, fingerprint, created_at
  FROM json_populate_recordset(NULL::holdfast.job_keys, $2::json)
    ON CONFLICT (owner, name, key) DO UPDATE
   SET job_id = excluded.job_id
 WHERE taken.job_id = excluded.job_id
RETURNING key
