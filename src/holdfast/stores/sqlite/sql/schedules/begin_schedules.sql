-- A schedule begins when it is first heard of: what lies before that was not missed.
INSERT INTO holdfast_schedules (name, last_at)
SELECT value, :now FROM json_each(:names) WHERE true
    ON CONFLICT DO NOTHING
