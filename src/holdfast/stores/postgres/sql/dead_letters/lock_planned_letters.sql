-- The letters that still belong to the plan, now that their jobs are locked.
SELECT job_id::text
  FROM holdfast.dead_letters
 WHERE job_id = ANY ($2::uuid[])
   AND plan = $1
   AND state = 'validated'
 ORDER BY dead_letters.job_id
   FOR UPDATE
