-- Deadlines: a job that has not ended by then fails, and a result that comes later is kept as late.

CREATE INDEX holdfast_jobs_deadline ON holdfast_jobs (deadline_at) WHERE deadline_at IS NOT NULL;

ALTER TABLE holdfast_finished ADD COLUMN timed_out_at INTEGER;
ALTER TABLE holdfast_finished ADD COLUMN late_at INTEGER;
ALTER TABLE holdfast_finished ADD COLUMN late_result TEXT;

-- Waits: a job that sleeps, or waits for a signal or for other jobs, is parked like one that waits for its
-- retry, but news may wake it early. `signals` counts those it was sent, `pending` the jobs it waits for.
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

-- Ends that somebody waits for and has not been told of yet: written with the end itself.
CREATE TABLE holdfast_awaited_ends (
    child_id  TEXT PRIMARY KEY
) WITHOUT ROWID;

-- By the table itself: a worker of the earlier version, which knows nothing of this, ends such jobs too.
CREATE TRIGGER holdfast_note_end AFTER DELETE ON holdfast_jobs
    WHEN EXISTS (SELECT 1 FROM holdfast_awaited WHERE child_id = OLD.id)
BEGIN
    INSERT INTO holdfast_awaited_ends (child_id) VALUES (OLD.id) ON CONFLICT DO NOTHING;
END;

-- Queues that somebody paused, and how far each schedule has come.
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
