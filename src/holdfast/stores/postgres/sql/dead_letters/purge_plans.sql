-- Deletes plans that have ended, or never begun, and that no letter is in any more. SKIP LOCKED: one that somebody moves
-- is left to them.
WITH old AS MATERIALIZED (
    SELECT token
      FROM holdfast.plans
     WHERE NOT running
       AND updated_at <= (SELECT now FROM holdfast.clock) - $1::interval
       AND NOT EXISTS (SELECT FROM holdfast.dead_letters WHERE plan = plans.token)
     ORDER BY token
     LIMIT $2
       FOR UPDATE SKIP LOCKED
)
DELETE FROM holdfast.plans USING old WHERE plans.token = old.token
RETURNING plans.token
