SELECT job_id, {letter_columns}
  FROM holdfast_dead_letters
 WHERE job_id = :id
   AND (:owner IS NULL OR owner = :owner)
