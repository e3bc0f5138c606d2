-- Deletes plans that have ended, or have never begun, and have no letters any more.
DELETE FROM holdfast_plans
 WHERE token IN (SELECT token
                   FROM holdfast_plans AS old
                  WHERE running = 0
                    AND updated_at <= :until
                    AND NOT EXISTS (SELECT 1 FROM holdfast_dead_letters AS letter WHERE letter.plan = old.token)
                  LIMIT :limit)
