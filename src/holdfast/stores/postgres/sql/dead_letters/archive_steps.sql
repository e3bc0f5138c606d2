SELECT job_id::text, at, state, actor, reason, meta
  FROM holdfast.letter_steps
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY letter_steps.job_id, seq
