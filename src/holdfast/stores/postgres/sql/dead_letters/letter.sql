SELECT job_id::text, {letter_columns}
  FROM holdfast.dead_letters
 WHERE job_id = $1::uuid
   AND ($2::text IS NULL OR owner = $2)
