INSERT INTO holdfast_signals (job_id, number, name, data, sent_at) VALUES (:id, :number, :name, :data, :sent_at)
