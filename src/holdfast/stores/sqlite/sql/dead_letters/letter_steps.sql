-- A reason that came with a failure may hold half a character, which JSON can say and text cannot: so it comes as bytes.
SELECT at, state, actor, CAST(reason AS BLOB) AS reason, meta
  FROM holdfast_letter_steps
 WHERE job_id = :id
 ORDER BY seq
