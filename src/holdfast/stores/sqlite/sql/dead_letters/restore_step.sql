INSERT INTO holdfast_letter_steps (job_id, seq, at, state, actor, reason, meta)
VALUES (:id, :seq, :at, :state, :actor, :reason, :meta)
