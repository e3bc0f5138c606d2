-- A schedule begins when it is first heard of: what lies before that was not missed.
INSERT INTO holdfast.schedules (name, last_at)
SELECT name, clock.now FROM unnest($1::text[]) AS name, holdfast.clock
    ON CONFLICT DO NOTHING
