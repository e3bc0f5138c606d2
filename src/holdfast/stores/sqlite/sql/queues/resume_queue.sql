DELETE FROM holdfast_paused_queues WHERE queue = :queue
