-- The first process raises the alarm: for the others the name exists already.
INSERT INTO holdfast_alarms (name, raised_at) VALUES (:kind, :now) ON CONFLICT DO NOTHING
