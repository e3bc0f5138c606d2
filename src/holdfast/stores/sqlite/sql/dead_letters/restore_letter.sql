-- Puts a letter back; its retention begins again, or it would leave at once.
INSERT INTO holdfast_dead_letters (
    job_id, version, state, name, queue, owner, generation, stage, error_class, fingerprint, failure, attempt, holds,
    first_reason, first_failure_at, last_failure_at, updated_at, kept_since, deaths, replays, escalated, repeated,
    cause, evidence, safe, plan, notes, corrected)
VALUES (
    :job_id, :version, :state, :name, :queue, :owner, :generation, :stage, :error_class, :fingerprint, :failure,
    :attempt, :holds, :first_reason, :first_failure_at, :last_failure_at, :updated_at, :now, :deaths, :replays,
    :escalated, :repeated, :cause, :evidence, :safe, :plan, :notes, :corrected)
