-- Ends the letters of messages that an operator has retried or skipped, in the transaction that changes the messages. A
-- letter that is being replayed is left to its job, which ends it. They are locked in the order of their ids, as by every
-- statement.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), open AS MATERIALIZED (
    SELECT job_id
      FROM holdfast.dead_letters
     WHERE job_id = ANY ($1::uuid[])
       AND state IN ('new', 'triaged', 'remediated', 'validated')
     ORDER BY job_id
       FOR UPDATE
), moved AS (
    UPDATE holdfast.dead_letters AS letter
       SET version = letter.version + 1, updated_at = clock.now, state = $2, plan = NULL,
           notes = coalesce($3, letter.notes)
      FROM open, clock
     WHERE letter.job_id = open.job_id
    RETURNING letter.job_id
)
INSERT INTO holdfast.letter_steps (job_id, at, state, actor, reason, meta)
SELECT job_id, clock.now, $2, $4, $5, $6 FROM moved, clock
