SELECT number, name, data, sent_at FROM holdfast_signals WHERE job_id = :id ORDER BY number
