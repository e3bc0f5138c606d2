-- In the order of their ids, as those delete them who forget letters.
WITH mine AS MATERIALIZED (
    SELECT id FROM holdfast.tickets WHERE id = ANY ($1::text[]) ORDER BY id FOR UPDATE
)
UPDATE holdfast.tickets AS ticket
   SET logged = true
  FROM mine
 WHERE ticket.id = mine.id
