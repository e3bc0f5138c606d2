-- Takes announcements of these jobs that are due, the oldest first, and postpones them: if the process dies, another one
-- takes them later, and the raised number of tries keeps this one from publishing them then. Of one job they are rendered
-- in order: a later one waits until the earlier ones are published. SKIP LOCKED gives concurrent sessions different ones.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), due AS MATERIALIZED (
    SELECT sequence
      FROM holdfast.announcements AS due
     WHERE name = ANY ($1::text[])
       AND due_at <= (SELECT now FROM clock)
       AND NOT EXISTS (SELECT FROM holdfast.announcements AS earlier
                        WHERE earlier.job_id = due.job_id AND earlier.sequence < due.sequence)
     ORDER BY due_at, sequence
     LIMIT $2
       FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE holdfast.announcements AS taken
       SET due_at = clock.now + $3::interval,
           tries = taken.tries + 1
      FROM clock, due
     WHERE taken.sequence = due.sequence
    RETURNING taken.sequence, taken.job_id::text, taken.name, taken.kind, taken.generation, taken.attempt, taken.again,
              taken.failure, taken.at, taken.tries
)
SELECT * FROM taken ORDER BY sequence
