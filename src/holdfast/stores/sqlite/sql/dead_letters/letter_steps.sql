-- A reason that came with a failure may contain a lone surrogate, which JSON can express and text cannot: so it is
-- read as bytes.
SELECT at, state, actor, CAST(reason AS BLOB) AS reason, meta
  FROM holdfast_letter_steps
 WHERE job_id = :id
 ORDER BY seq
