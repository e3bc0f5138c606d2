-- Stores the first state of a provider, unless somebody has.
INSERT INTO holdfast_providers (name, version, state, updated_at) VALUES (:name, 1, :state, :now) ON CONFLICT DO NOTHING
