-- Applies steps to letters whose version is still the one that was read. They are locked in the order of their ids;
-- of two sessions with the same version, the second waits for the first and then finds another version. A new plan is
-- stored only if a letter joins it; a letter in a plan that has begun does not. A closed letter still counts in its
-- plan. Arguments may change because the job of a letter in these states has ended: a retry waits for the letter.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), seen AS MATERIALIZED (
    SELECT letter.job_id
      FROM unnest($1::uuid[], $2::integer[]) AS requested (job_id, version)
      JOIN holdfast.dead_letters AS letter USING (job_id)
     WHERE letter.version = requested.version
       AND letter.state = ANY ($3::text[])
       AND ($14::text IS NULL
            OR letter.state <> 'validated'
            OR NOT EXISTS (SELECT FROM holdfast.plans WHERE token = letter.plan AND running))
     ORDER BY letter.job_id
       FOR UPDATE OF letter
), moved AS (
    UPDATE holdfast.dead_letters AS letter
       SET version = letter.version + 1, updated_at = clock.now, state = $4,
           cause = coalesce($5, letter.cause), evidence = coalesce($6, letter.evidence),
           safe = coalesce($7, letter.safe), notes = coalesce($8, letter.notes),
           plan = CASE WHEN $4 = 'closed' THEN letter.plan ELSE $9 END,
           corrected = letter.corrected OR $16::text IS NOT NULL
      FROM seen, clock
     WHERE letter.job_id = seen.job_id
    RETURNING letter.job_id
), steps AS (
    INSERT INTO holdfast.letter_steps (job_id, at, state, actor, reason, meta)
    SELECT moved.job_id, clock.now, step.state, step.actor, step.reason, step.meta
      FROM clock, moved, unnest($10::text[], $11::text[], $12::text[], $13::text[]) WITH ORDINALITY
           AS step (state, actor, reason, meta, ordinal)
     ORDER BY moved.job_id, step.ordinal
), planned AS (
    INSERT INTO holdfast.plans (token, version, running, state, updated_at)
    SELECT $9, 1, $15::boolean, $14::text, clock.now
      FROM clock
     WHERE $14 IS NOT NULL
       AND EXISTS (SELECT FROM moved)
), kept AS (
    INSERT INTO holdfast.original_args (job_id, args)
    SELECT job_id, args FROM moved JOIN holdfast.payloads USING (job_id) WHERE $16 IS NOT NULL
        ON CONFLICT DO NOTHING
), corrected AS (
    UPDATE holdfast.payloads SET args = $16 FROM moved WHERE payloads.job_id = moved.job_id AND $16 IS NOT NULL
)
SELECT job_id::text FROM moved
