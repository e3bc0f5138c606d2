-- Held jobs: a job whose provider cannot be called is parked like one that waits for its retry, but until a time in
-- the far future, until it is released. `held_by` is set only while the job is held; `let_out_by` records afterwards
-- who held it. A worker of an earlier version, which writes neither, cannot make a job look held.
ALTER TABLE holdfast_jobs ADD COLUMN held_by TEXT;
ALTER TABLE holdfast_jobs ADD COLUMN let_out_by TEXT;

-- In the order of the time until which they are parked: the delay is the same for all, so the longest held come
-- first.
CREATE INDEX holdfast_jobs_held ON holdfast_jobs (held_by, retry_after, id) WHERE held_by IS NOT NULL;

-- Which provider computed a stage.
ALTER TABLE holdfast_stages ADD COLUMN provider TEXT;

-- The state of a provider that all workers share: one row, updated only by a process that has read its current
-- version.
CREATE TABLE holdfast_providers (
    name        TEXT PRIMARY KEY,
    version     INTEGER NOT NULL,
    state       TEXT NOT NULL,
    updated_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE holdfast_provider_events (
    seq   INTEGER PRIMARY KEY,
    name  TEXT NOT NULL,
    at    INTEGER NOT NULL,
    kind  TEXT NOT NULL,
    meta  TEXT NOT NULL
);

CREATE INDEX holdfast_provider_events_of_provider ON holdfast_provider_events (name, seq);
