-- New letters of a name that were never replayed, whose failure passes, and which is as old as that: the index has those
-- and no others, in this order. A page goes on behind the letter (:after_at, :after).
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
