-- New letters of one job name that were never replayed, whose failure is transient and at least as old as given: a
-- partial index contains exactly these, in this order. A page continues after the letter ($4, $5).
SELECT job_id::text, {letter_columns}
  FROM holdfast.dead_letters
 WHERE state = 'new'
   AND replays = 0
   AND strpos(failure, '"retryable": true') > 0
   AND name = $1
   AND last_failure_at <= (SELECT now FROM holdfast.clock) - $2::interval
   AND last_failure_at > (SELECT now FROM holdfast.clock) - $3::interval
   AND (last_failure_at, job_id) > ($4::timestamptz, $5::uuid)
 ORDER BY last_failure_at, dead_letters.job_id
 LIMIT $6
