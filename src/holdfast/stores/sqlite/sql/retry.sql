-- Brings a failed job back as a new generation. Token and generation go on from where they were: a
-- worker of the old generation still matches nothing. A lease has an odd token; that of a job which its
-- deadline ended is even already, and no lease's. It has as much time as it had before.
INSERT INTO holdfast_jobs (
    id, name, queue, owner, priority, generation, lease_token, stages, created_at, queued_at, updated_at,
    started_at, deadline_at, subject, version, trace, signals)
SELECT id, name, queue, owner, priority, generation + 1, lease_token + lease_token % 2, stages, created_at, :now, :now,
       started_at, :now + (deadline_at - queued_at), subject, version, trace,
       (SELECT count(*) FROM holdfast_signals WHERE job_id = id)
  FROM holdfast_finished
 WHERE id = :id
   AND status = 'failed'
   AND (:owner IS NULL OR owner = :owner)
