-- Those of a plan whose turn is next. Nothing is locked yet: their jobs come first.
SELECT job_id::text
  FROM holdfast.dead_letters
 WHERE plan = $1
   AND state = 'validated'
 ORDER BY dead_letters.job_id
 LIMIT $2
