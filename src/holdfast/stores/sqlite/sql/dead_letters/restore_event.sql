INSERT INTO holdfast_job_events (job_id, at, kind, meta) VALUES (:id, :at, :kind, :meta)
