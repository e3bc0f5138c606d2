-- Whoever is first raises it: the others meet the name.
INSERT INTO holdfast_alarms (name, raised_at) VALUES (:name, :now) ON CONFLICT DO NOTHING
