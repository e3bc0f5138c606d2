SELECT id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages, created_at,
       queued_at, finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token, leased_by,
       subject, version, trace, result, failure, stage, timed_out_at, late_at, late_result, args,
       announces, runs, announced_again
  FROM holdfast_finished
  JOIN holdfast_payloads ON job_id = id
 WHERE id = :id
   AND status = 'failed'
