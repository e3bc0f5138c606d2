-- Archives of earlier versions have no brief_fingerprint and no number.
INSERT INTO holdfast_stages (
    job_id, name, call, status, attempt, generation, lease_token, fingerprint, brief_fingerprint, number, stored_at,
    result, failure, provider)
VALUES (
    :id, :name, :call, :status, :attempt, :generation, :lease_token, :fingerprint, coalesce(:brief_fingerprint, ''),
    coalesce(:number, 0), :stored_at, :result, :failure, :provider)
