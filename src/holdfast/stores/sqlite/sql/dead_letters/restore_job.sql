-- Restores a failed job as it was, with its token and generation: a worker that once held it still matches nothing.
INSERT INTO holdfast_finished (
    id, name, queue, owner, status, priority, attempt, generation, lease_token, losses, stages, created_at,
    queued_at, finished_at, started_at, last_attempt, last_attempt_at, deadline_at, timed_out_token, leased_by,
    subject, version, trace, result, failure, stage, timed_out_at, late_at, late_result)
VALUES (
    :id, :name, :queue, :owner, :status, :priority, :attempt, :generation, :lease_token, :losses, :stages, :created_at,
    :queued_at, :finished_at, :started_at, :last_attempt, :last_attempt_at, :deadline_at, :timed_out_token, :leased_by,
    :subject, :version, :trace, :result, :failure, :stage, :timed_out_at, :late_at, :late_result)
