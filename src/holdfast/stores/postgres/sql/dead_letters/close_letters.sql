-- Closes letters whose job has not failed or no longer exists: there is nothing to replay, and their plan would read
-- them again in every round.
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
