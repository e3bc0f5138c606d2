DELETE FROM holdfast.paused_queues WHERE queue = $1 RETURNING queue
