SELECT job_id::text, version, state, name, queue, owner, generation, stage, error_class, fingerprint, failure, attempt,
       holds, first_reason, first_failure_at, last_failure_at, updated_at, deaths, replays, escalated, repeated, cause,
       evidence, safe, plan, notes, corrected
  FROM holdfast.dead_letters
 WHERE job_id = $1::uuid
   AND ($2::text IS NULL OR owner = $2)
