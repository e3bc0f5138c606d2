-- Runs in the same immediate transaction as due_tickets.sql, so nobody comes between. Each time for twice as long: who
-- cannot be told is not asked without end.
UPDATE holdfast_tickets
   SET due_at = :now + :lease * (1 << min(tries, 6)),
       tries = tries + 1
 WHERE id IN (SELECT value FROM json_each(:ids))
