-- Locks all tables first, in the order in which workers lock them.
LOCK TABLE holdfast.jobs, holdfast.stages IN ACCESS EXCLUSIVE MODE;

-- Held jobs: a job whose provider cannot be called is parked like one that waits for its retry, but until a time in
-- the far future, until it is released. `held_by` is set only while the job is held; `let_out_by` records afterwards
-- who held it. A worker of an earlier version, which writes neither, cannot make a job look held.
ALTER TABLE holdfast.jobs
    ADD COLUMN held_by text,
    ADD COLUMN let_out_by text;

-- In the order of the time until which they are parked: the delay is the same for all, so the longest held come
-- first.
CREATE INDEX jobs_held ON holdfast.jobs (held_by, retry_after, id) WHERE held_by IS NOT NULL;

-- Which provider computed a stage.
ALTER TABLE holdfast.stages ADD COLUMN provider text;

-- The state of a provider that all workers share: one row, updated only by a session that has read its current
-- version. It is updated often, so its page has room for the next row version, and is vacuumed soon.
CREATE TABLE holdfast.providers (
    name        text PRIMARY KEY,
    version     bigint NOT NULL,
    state       text NOT NULL,
    updated_at  timestamptz NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE TABLE holdfast.provider_events (
    name  text NOT NULL,
    seq   bigint GENERATED ALWAYS AS IDENTITY,
    at    timestamptz NOT NULL,
    kind  text NOT NULL,
    meta  text NOT NULL,
    PRIMARY KEY (name, seq)
);
