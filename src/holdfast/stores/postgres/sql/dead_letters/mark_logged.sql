-- Locks in the order of the ids, as the statements that delete tickets do.
WITH mine AS MATERIALIZED (
    SELECT id FROM holdfast.tickets WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE
)
UPDATE holdfast.tickets AS ticket
   SET logged = true
  FROM mine
 WHERE ticket.id = mine.id
