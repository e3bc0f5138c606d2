-- Whoever is first raises it: the others meet the name.
INSERT INTO holdfast_alarms (name, raised_at) VALUES (:kind, :now) ON CONFLICT DO NOTHING
