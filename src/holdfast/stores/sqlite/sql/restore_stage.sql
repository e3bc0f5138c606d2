INSERT INTO holdfast_stages (
    job_id, name, call, status, attempt, generation, lease_token, fingerprint, stored_at, result, failure, provider)
VALUES (
    :id, :name, :call, :status, :attempt, :generation, :lease_token, :fingerprint, :stored_at, :result, :failure,
    :provider)
