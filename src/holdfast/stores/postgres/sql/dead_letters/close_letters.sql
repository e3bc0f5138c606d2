-- Letters whose job has not failed, or is gone: nothing is left to replay. A plan would look at them for ever.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), moved AS (
    UPDATE holdfast.dead_letters
       SET version = version + 1, updated_at = clock.now, state = 'closed', plan = NULL,
           notes = 'its job is not failed any more'
      FROM clock
     WHERE job_id = ANY ($1::uuid[])
    RETURNING job_id
)
INSERT INTO holdfast.letter_steps (job_id, at, state, actor, reason, meta)
SELECT job_id, clock.now, 'closed', 'holdfast', 'its job is not failed any more', '{}' FROM moved, clock
