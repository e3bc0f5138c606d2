-- Deletes tickets that were notified long ago and have no letter any more; the others are deleted with their letters.
-- Locks in the order of the ids, as notification and the deletion of letters do.
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
