INSERT INTO holdfast_payloads (job_id, args) VALUES (:id, :args)
