INSERT INTO holdfast_paused_queues (queue, paused_at, actor, reason)
VALUES (:queue, :now, :actor, :reason)
    ON CONFLICT DO NOTHING
