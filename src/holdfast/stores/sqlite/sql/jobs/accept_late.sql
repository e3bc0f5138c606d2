-- Accepts a late result. accept_history.sql has recorded how the job had ended before.
UPDATE holdfast_finished
   SET status = 'completed', result = late_result, failure = NULL, stage = NULL, finished_at = :now
 WHERE id = :id
   AND status = 'failed'
   AND late_at IS NOT NULL
   AND (:late_at IS NULL OR late_at = :late_at)
   AND (:owner IS NULL OR owner = :owner)
