-- Restores a letter, unless one exists. Its retention starts again.
WITH letter AS (
    INSERT INTO holdfast.dead_letters (job_id, kept_since, {letter_columns})
    SELECT job_id, clock.now, {letter_columns}
      FROM json_populate_record(NULL::holdfast.dead_letters, $1::json), holdfast.clock
        ON CONFLICT DO NOTHING
    RETURNING job_id
), steps AS (
    INSERT INTO holdfast.letter_steps (job_id, at, state, actor, reason, meta)
    SELECT letter.job_id, step.at, step.state, step.actor, step.reason, step.meta
      FROM letter, json_populate_recordset(NULL::holdfast.letter_steps, $2::json) AS step
), original AS (
    INSERT INTO holdfast.original_args (job_id, args)
    SELECT job_id, $3::text FROM letter WHERE $3 IS NOT NULL
        ON CONFLICT DO NOTHING
)
SELECT job_id::text FROM letter
