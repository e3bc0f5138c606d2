-- Deadlines: a job that has not ended by then fails, and a result that comes later is kept as late.

CREATE INDEX holdfast_jobs_deadline ON holdfast_jobs (deadline_at) WHERE deadline_at IS NOT NULL;

ALTER TABLE holdfast_finished ADD COLUMN timed_out_at INTEGER;
ALTER TABLE holdfast_finished ADD COLUMN late_at INTEGER;
ALTER TABLE holdfast_finished ADD COLUMN late_result TEXT;

-- Waits: a job that sleeps, or waits for a signal or for other jobs, is parked like one that waits for its retry, but
-- a signal or an end may wake it early. `signals` counts the signals that it was sent, `pending` the jobs for which
-- it waits.
ALTER TABLE holdfast_jobs ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_jobs ADD COLUMN signals INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_jobs ADD COLUMN pending INTEGER NOT NULL DEFAULT 0;

CREATE TABLE holdfast_signals (
    job_id   TEXT NOT NULL,
    number   INTEGER NOT NULL,
    name     TEXT NOT NULL,
    data     TEXT NOT NULL,
    sent_at  INTEGER NOT NULL,
    PRIMARY KEY (job_id, number)
) WITHOUT ROWID;

CREATE TABLE holdfast_awaited (
    child_id   TEXT NOT NULL,
    parent_id  TEXT NOT NULL,
    PRIMARY KEY (child_id, parent_id)
) WITHOUT ROWID;

CREATE INDEX holdfast_awaited_by_parent ON holdfast_awaited (parent_id);

-- Ends of jobs that were not yet delivered to the jobs that wait for them; written together with the end.
CREATE TABLE holdfast_awaited_ends (
    child_id  TEXT PRIMARY KEY
) WITHOUT ROWID;

-- A trigger, because workers of the earlier version, which do not know this table, end such jobs too.
CREATE TRIGGER holdfast_note_end AFTER DELETE ON holdfast_jobs
    WHEN EXISTS (SELECT 1 FROM holdfast_awaited WHERE child_id = OLD.id)
BEGIN
    INSERT INTO holdfast_awaited_ends (child_id) VALUES (OLD.id) ON CONFLICT DO NOTHING;
END;

-- Paused queues, and the last tick of each schedule.
CREATE TABLE holdfast_paused_queues (
    queue      TEXT PRIMARY KEY,
    paused_at  INTEGER NOT NULL,
    actor      TEXT NOT NULL,
    reason     TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE holdfast_schedules (
    name     TEXT PRIMARY KEY,
    last_at  INTEGER NOT NULL
) WITHOUT ROWID;
