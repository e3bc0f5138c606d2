SELECT queue, paused_at, actor, reason FROM holdfast_paused_queues ORDER BY queue
