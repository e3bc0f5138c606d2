-- Deletes tickets that were told long ago, and have no letter any more: those of letters leave with them. In the order
-- of their ids, as those lock them who tell and who forget letters.
WITH old AS MATERIALIZED (
    SELECT id
      FROM holdfast.tickets
     WHERE told_at <= (SELECT now FROM holdfast.clock) - $1::interval
       AND NOT EXISTS (SELECT FROM holdfast.dead_letters WHERE job_id = tickets.job_id)
     ORDER BY id
     LIMIT $2
       FOR UPDATE SKIP LOCKED
)
DELETE FROM holdfast.tickets USING old WHERE tickets.id = old.id
RETURNING tickets.id
