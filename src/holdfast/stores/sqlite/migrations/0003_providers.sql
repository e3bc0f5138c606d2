-- Holds: a job whose provider cannot be called is parked like one that waits for its retry, but for longer than
-- anybody lives, until somebody lets it out. `held_by` is set as long as it is held, and never else; `let_out_by`
-- says afterwards who held it. A worker of an earlier version, which writes neither, can make no job look held.
ALTER TABLE holdfast_jobs ADD COLUMN held_by TEXT;
ALTER TABLE holdfast_jobs ADD COLUMN let_out_by TEXT;

-- By the time for which they are parked: it is the same length for all, so who has been held longest comes first.
CREATE INDEX holdfast_jobs_held ON holdfast_jobs (held_by, retry_after, id) WHERE held_by IS NOT NULL;

-- Which provider computed a stage.
ALTER TABLE holdfast_stages ADD COLUMN provider TEXT;

-- What all workers know of a provider together: one row, changed by whoever has read its present version.
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
