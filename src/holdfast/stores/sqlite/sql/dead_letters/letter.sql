SELECT job_id, version, state, name, queue, owner, generation, stage, error_class, fingerprint, failure, attempt, holds,
       first_reason, first_failure_at, last_failure_at, updated_at, deaths, replays, escalated, repeated, cause, evidence,
       safe, plan, notes, corrected
  FROM holdfast_dead_letters
 WHERE job_id = :id
   AND (:owner IS NULL OR owner = :owner)
