-- Locks in the order of the ids, as the statements that delete tickets do.
WITH mine AS MATERIALIZED (
    SELECT id FROM holdfast.tickets WHERE id = ANY ($1::text[]) AND told_at IS NULL ORDER BY id FOR UPDATE
)
UPDATE holdfast.tickets AS ticket
   SET told_at = clock.now, quiet = $2
  FROM mine, holdfast.clock
 WHERE ticket.id = mine.id
