-- New letters of one job name that were never replayed, whose failure is transient and at least as old as given: a
-- partial index contains exactly these, in this order. A page continues after the letter (:after_at, :after).
SELECT job_id, {letter_columns}
  FROM holdfast_dead_letters
 WHERE state = 'new'
   AND replays = 0
   AND instr(failure, '"retryable": true') > 0
   AND name = :name
   AND last_failure_at <= :until
   AND last_failure_at > :since
   AND (last_failure_at, job_id) > (:after_at, :after)
 ORDER BY last_failure_at, job_id
 LIMIT :limit
