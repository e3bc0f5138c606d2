-- Reserves the versions of a restored job again, and returns those that belong to it, as restore_keys.sql does for
-- keys. The subject is locked, because a submission reads the latest version and then adds one.
INSERT INTO holdfast.job_versions AS taken (owner, name, subject, version, job_id, fingerprint, created_at)
SELECT owner, name, subject, version, $1::uuid, fingerprint, created_at
  FROM json_populate_recordset(NULL::holdfast.job_versions, $2::json)
    ON CONFLICT (owner, name, subject, version) DO UPDATE
   SET job_id = excluded.job_id
 WHERE taken.job_id = excluded.job_id
RETURNING version
