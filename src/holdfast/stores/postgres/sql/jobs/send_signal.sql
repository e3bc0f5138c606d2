-- Stores a signal for a live job, and makes the job ready if it waits. A job that is about to wait compares the count
-- in its row, so that no signal is missed.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), signalled AS (
    UPDATE holdfast.jobs
       SET signals = signals + 1,
           retry_after = CASE WHEN NOT waiting THEN retry_after END,
           waiting = false,
           updated_at = clock.now
      FROM clock
     WHERE id = $1::uuid
       AND ($2::text IS NULL OR owner = $2)
       AND signals < $6::integer
    RETURNING id, queue, signals
), kept AS (
    INSERT INTO holdfast.signals (job_id, number, name, data, sent_at)
    SELECT id, signals, $3, $4, clock.now FROM signalled, clock
), history AS (
    INSERT INTO holdfast.job_events (job_id, at, kind, meta)
    SELECT id, clock.now, 'signalled', $5 FROM signalled, clock
)
SELECT pg_notify('holdfast', 'ready:' || queue) FROM signalled
