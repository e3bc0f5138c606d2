-- Runs in the same immediate transaction as due_tickets.sql, so no other writer comes between. Tickets are postponed
-- each time for twice as long, so that a channel that fails is not called endlessly.
UPDATE holdfast_tickets
   SET due_at = :now + :lease * (1 << min(tries, 6)),
       tries = tries + 1
 WHERE id IN (SELECT value FROM json_each(:ids))
