-- Replaces a plan's state if its version is still the one that was read. A concurrent update waits for the first one
-- and then finds another version. The row stays locked until the letters that change with it are written.
UPDATE holdfast.plans
   SET version = version + 1, state = $3, running = $4, updated_at = clock.now
  FROM holdfast.clock
 WHERE token = $1
   AND version = $2
RETURNING token
