INSERT INTO holdfast_plans (token, version, running, state, updated_at) VALUES (:token, 1, :running, :state, :now)
