-- Locked, so that the other tables tell of the same moment: whoever brings a job back waits for its letter.
SELECT job_id::text, version, state, name, queue, owner, generation, stage, error_class, fingerprint, failure, attempt,
       holds, first_reason, first_failure_at, last_failure_at, updated_at, deaths, replays, escalated, repeated, cause,
       evidence, safe, plan, notes, corrected,
       (SELECT args FROM holdfast.original_args AS original WHERE original.job_id = letter.job_id) AS original_args
  FROM holdfast.dead_letters AS letter
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY letter.job_id
   FOR SHARE OF letter
