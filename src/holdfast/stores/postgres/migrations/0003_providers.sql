-- All at once, before anything else, and in the order in which workers take them.
LOCK TABLE holdfast.jobs, holdfast.stages IN ACCESS EXCLUSIVE MODE;

-- Holds: a job whose provider cannot be called is parked like one that waits for its retry, but for longer than
-- anybody lives, until somebody lets it out. `held_by` is set as long as it is held, and never else; `let_out_by`
-- says afterwards who held it. A worker of an earlier version, which writes neither, can make no job look held.
ALTER TABLE holdfast.jobs
    ADD COLUMN held_by text,
    ADD COLUMN let_out_by text;

-- By the time for which they are parked: it is the same length for all, so who has been held longest comes first.
CREATE INDEX jobs_held ON holdfast.jobs (held_by, retry_after, id) WHERE held_by IS NOT NULL;

-- Which provider computed a stage.
ALTER TABLE holdfast.stages ADD COLUMN provider text;

-- What all workers know of a provider together: one row, changed by whoever has read its present version. It is
-- written again and again, so its page has room for the next version, and is swept soon.
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
