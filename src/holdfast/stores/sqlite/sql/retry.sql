-- Brings a failed job back as a new generation. Token and generation go on from where they were: a
-- worker of the old generation still matches nothing.
INSERT INTO holdfast_jobs (
    id, name, queue, owner, priority, generation, lease_token, stages, created_at, queued_at, updated_at,
    started_at, deadline_at, subject, version, trace)
SELECT id, name, queue, owner, priority, generation + 1, lease_token + 1, stages, created_at, :now, :now,
       started_at, deadline_at, subject, version, trace
  FROM holdfast_finished
 WHERE id = :id
   AND status = 'failed'
   AND (:owner IS NULL OR owner = :owner)
