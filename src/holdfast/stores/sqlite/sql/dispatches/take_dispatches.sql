INSERT INTO holdfast_dispatches (job_id, queue, sent_at)
SELECT value, :queue, :now FROM json_each(:ids) WHERE true
    ON CONFLICT (job_id) DO UPDATE SET sent_at = excluded.sent_at, number = number + 1, queue = excluded.queue
