-- Stores the first state of a provider, unless there is one.
INSERT INTO holdfast_providers (name, version, state, updated_at) VALUES (:name, 1, :state, :now) ON CONFLICT DO NOTHING
