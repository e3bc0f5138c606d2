-- A schedule begins when it is first declared: earlier ticks were not missed.
INSERT INTO holdfast_schedules (name, last_at)
SELECT value, :now FROM json_each(:names) WHERE true
    ON CONFLICT DO NOTHING
