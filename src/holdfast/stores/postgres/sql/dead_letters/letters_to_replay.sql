-- The next letters of a plan. Nothing is locked yet: their jobs must be locked first.
SELECT job_id::text
  FROM holdfast.dead_letters
 WHERE plan = $1
   AND state = 'validated'
 ORDER BY dead_letters.job_id
 LIMIT $2
