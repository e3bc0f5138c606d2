-- Deletes plans that have ended, or have never begun, and have no letters any more. SKIP LOCKED leaves a plan alone
-- that another session is changing.
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
