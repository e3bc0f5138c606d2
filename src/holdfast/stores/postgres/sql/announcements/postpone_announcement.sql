-- Postpones an announcement that could not be rendered, unless another process has taken it since.
UPDATE holdfast.announcements
   SET due_at = clock.now + $3::interval
  FROM holdfast.clock
 WHERE sequence = $1::bigint
   AND tries = $2::integer
