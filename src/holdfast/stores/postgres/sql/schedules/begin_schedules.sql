-- A schedule begins when it is first declared: earlier ticks were not missed.
INSERT INTO holdfast.schedules (name, last_at)
SELECT name, clock.now FROM unnest($1::text[]) AS name, holdfast.clock
    ON CONFLICT DO NOTHING
