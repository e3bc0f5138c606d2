-- Accepts a late result, and records how the job had ended before.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), accepted AS (
    UPDATE holdfast.finished AS job
       SET status = 'completed', result = late_result, failure = NULL, stage = NULL, finished_at = clock.now
      FROM clock
     WHERE id = $1::uuid
       AND status = 'failed'
       AND late_at IS NOT NULL
       AND ($4::timestamptz IS NULL OR late_at = $4)
       AND ($2::text IS NULL OR owner = $2)
    RETURNING job.id, job.timed_out_at
), history AS (
    INSERT INTO holdfast.job_events (job_id, at, kind, meta)
    SELECT id, timed_out_at, 'expired', '{"late": true}' FROM accepted
     UNION ALL
    SELECT id, clock.now, 'accepted', $3::text FROM accepted, clock
)
SELECT id::text FROM accepted
