-- Replaces a plan's state if its version is still the one that was read: of all workers, one makes each move.
UPDATE holdfast_plans
   SET version = version + 1, state = :state, running = :running, updated_at = :now
 WHERE token = :token
   AND version = :version
