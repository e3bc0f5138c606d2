-- Reserves keys that are free. A concurrent submission of the same key waits here until the other one commits; sorted
-- input keeps two batches from waiting for each other.
INSERT INTO holdfast.job_keys (owner, name, key, job_id, fingerprint, created_at)
SELECT owner, name, key, id::uuid, fingerprint, holdfast.holdfast_now()
  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS item (owner, name, key, id, fingerprint)
 ORDER BY owner, name, key
    ON CONFLICT (owner, name, key) DO NOTHING
RETURNING job_id::text
