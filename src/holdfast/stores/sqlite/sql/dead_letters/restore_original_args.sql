INSERT INTO holdfast_original_args (job_id, args) VALUES (:id, :args)
