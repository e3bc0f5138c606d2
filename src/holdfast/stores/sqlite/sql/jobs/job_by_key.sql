SELECT job_id, fingerprint FROM holdfast_job_keys WHERE owner = :owner AND name = :name AND key = :key
