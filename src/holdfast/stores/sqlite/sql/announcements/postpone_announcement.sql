-- Postpones an announcement that could not be rendered, unless another process has taken it since.
UPDATE holdfast_announcements
   SET due_at = :now + :delay
 WHERE sequence = :sequence
   AND tries = :tries
