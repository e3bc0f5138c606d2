-- Locks the letters, so that the other tables are read as of the same moment: a retry of the job waits for its
-- letter.
SELECT job_id::text, {letter_columns},
       (SELECT args FROM holdfast.original_args AS original WHERE original.job_id = letter.job_id) AS original_args
  FROM holdfast.dead_letters AS letter
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY letter.job_id
   FOR SHARE OF letter
