SELECT id::text, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages, created_at,
       queued_at, finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token, leased_by,
       subject, version, trace, failure, stage, timed_out_at, late_at, result, late_result, announces, runs, announced_again,
       (SELECT args FROM holdfast.payloads WHERE job_id = id) AS args
  FROM holdfast.finished
 WHERE id = ANY ($1::uuid[])
   AND status = 'failed'
