-- Like finish.sql, when there are jobs past their deadline: such a job has timed out, whatever its own outcome, and
-- its result is kept as late.
-- [[id, token, status, result, failure, stage], ...]
INSERT INTO holdfast_finished (
    id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages,
    created_at, queued_at, finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token,
    leased_by, subject, version, trace, result, failure, stage, timed_out_at, late_at, late_result,
    announces)
SELECT id, name, queue, owner, CASE WHEN late THEN 'failed' ELSE outcome END, priority, attempt, generation,
       lease_token, losses, stages, created_at, queued_at, :now, started_at, last_attempt, last_attempt_at,
       deadline_at, CASE WHEN late THEN lease_token END, leased_by, subject, version, trace,
       CASE WHEN NOT late THEN result END, CASE WHEN late THEN json_set(:timeout, '$.fingerprint', 'TIMEOUT:' || name) ELSE failure END,
       CASE WHEN NOT late THEN stage END, CASE WHEN late THEN :now END,
       CASE WHEN late AND result IS NOT NULL THEN :now END, CASE WHEN late THEN result END, announces
  FROM (SELECT job.*, want.value ->> 2 AS outcome, want.value ->> 3 AS result, want.value ->> 4 AS failure,
               want.value ->> 5 AS stage,
               coalesce(job.deadline_at <= :now, false) AND want.value ->> 2 <> 'cancelled' AS late
          FROM json_each(:batch) AS want
         CROSS JOIN holdfast_jobs AS job ON job.id = want.value ->> 0
         WHERE job.lease_token = want.value ->> 1
           AND job.leased_by IS NOT NULL)
