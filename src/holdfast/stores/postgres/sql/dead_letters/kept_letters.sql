-- Locked, so that the other tables tell of the same moment: whoever brings a job back waits for its letter.
SELECT job_id::text, {letter_columns},
       (SELECT args FROM holdfast.original_args AS original WHERE original.job_id = letter.job_id) AS original_args
  FROM holdfast.dead_letters AS letter
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY letter.job_id
   FOR SHARE OF letter
