SELECT queue, paused_at, actor, reason FROM holdfast.paused_queues ORDER BY queue
