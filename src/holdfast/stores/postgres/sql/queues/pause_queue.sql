INSERT INTO holdfast.paused_queues (queue, paused_at, actor, reason)
SELECT $1, now, $2, $3 FROM holdfast.clock
    ON CONFLICT DO NOTHING
RETURNING queue
