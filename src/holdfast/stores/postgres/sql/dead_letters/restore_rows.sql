-- Restores the rows of a restored job. Archives of earlier versions have no brief_fingerprint and no number.
WITH payload AS (
    INSERT INTO holdfast.payloads (job_id, args) VALUES ($1::uuid, $2)
), stages AS (
    INSERT INTO holdfast.stages (
        job_id, name, call, status, attempt, generation, lease_token, fingerprint, brief_fingerprint, number, stored_at,
        result, failure, provider)
    SELECT $1::uuid, name, call, status, attempt, generation, lease_token, fingerprint, coalesce(brief_fingerprint, ''),
           coalesce(number, 0), stored_at, result, failure, provider
      FROM json_populate_recordset(NULL::holdfast.stages, $3::json)
), signals AS (
    INSERT INTO holdfast.signals (job_id, number, name, data, sent_at)
    SELECT $1::uuid, number, name, data, sent_at FROM json_populate_recordset(NULL::holdfast.signals, $4::json)
)
INSERT INTO holdfast.job_events (job_id, at, kind, meta)
SELECT $1::uuid, at, kind, meta FROM json_populate_recordset(NULL::holdfast.job_events, $5::json)
