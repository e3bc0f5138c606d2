-- Makes parked jobs ready when they are due, in batches, so that the claim reads ready rows only.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), due AS MATERIALIZED (
    SELECT id
      FROM holdfast.jobs
     WHERE status = 'queued'
       AND retry_after <= (SELECT now FROM clock)
     ORDER BY retry_after
     LIMIT $1
       FOR UPDATE SKIP LOCKED
), promoted AS (
    UPDATE holdfast.jobs AS job
       SET retry_after = NULL, updated_at = clock.now
      FROM clock, due
     WHERE job.id = due.id
    RETURNING job.id
)
SELECT (SELECT count(*) FROM promoted),
       (SELECT min(retry_after) - (SELECT now FROM clock)
          FROM holdfast.jobs
         WHERE status = 'queued' AND retry_after > (SELECT now FROM clock))
