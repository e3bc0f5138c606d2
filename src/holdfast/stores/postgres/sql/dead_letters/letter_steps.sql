SELECT at, state, actor, reason, meta
  FROM holdfast.letter_steps
 WHERE job_id = $1::uuid
 ORDER BY seq
