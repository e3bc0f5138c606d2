-- The engine's tables. A live job has a narrow row in `jobs`; its arguments, stage results and history are in other
-- tables. When it ends it moves to `finished`, so that a claim never reads it.

CREATE SCHEMA IF NOT EXISTS holdfast;

CREATE TABLE holdfast.meta (
    only_row        boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    schema_version  integer NOT NULL,
    min_compatible  integer NOT NULL,
    clock_offset    interval NOT NULL DEFAULT interval '0'
);

INSERT INTO holdfast.meta (schema_version, min_compatible) VALUES (0, 0);

-- The clock of the engine. now() is constant within a transaction, so it is not used; the offset is for tests, which
-- cannot wait. A view, because the planner inlines it into the statement that reads it; a call of a function starts a
-- query of its own, at ten times the cost.
CREATE VIEW holdfast.clock AS
    SELECT clock_timestamp() + clock_offset AS now FROM holdfast.meta WHERE only_row;

CREATE FUNCTION holdfast.holdfast_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT now FROM holdfast.clock $$;

CREATE TABLE holdfast.jobs (
    id                uuid PRIMARY KEY,
    name              text NOT NULL,
    queue             text NOT NULL,
    owner             text NOT NULL,
    status            text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'processing')),
    priority          smallint NOT NULL,
    attempt           integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    generation        integer NOT NULL DEFAULT 1,
    lease_token       bigint NOT NULL DEFAULT 0,
    losses            integer NOT NULL DEFAULT 0,
    stages            integer NOT NULL DEFAULT 0,
    cancel_requested  boolean NOT NULL DEFAULT false,
    awaited           boolean NOT NULL DEFAULT false,
    created_at        timestamptz NOT NULL,
    queued_at         timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    started_at        timestamptz,
    last_attempt      integer NOT NULL DEFAULT 0,
    last_attempt_at   timestamptz,
    retry_after       timestamptz,
    lease_expires_at  timestamptz,
    deadline_at       timestamptz,
    timed_out_token   bigint,
    leased_by         text,
    subject           text,
    version           bigint,
    trace             text,
    CONSTRAINT a_lease_is_whole_or_absent CHECK (
        (status = 'processing') = (leased_by IS NOT NULL)
        AND (leased_by IS NULL) = (lease_expires_at IS NULL)
    )
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.1);

-- Ready jobs only, in the order in which they are claimed.
CREATE INDEX jobs_ready ON holdfast.jobs (queue, priority DESC, created_at, id)
    WHERE status = 'queued' AND retry_after IS NULL;
-- Parked jobs: the claim never reads them.
CREATE INDEX jobs_parked ON holdfast.jobs (retry_after)
    WHERE status = 'queued' AND retry_after IS NOT NULL;
CREATE INDEX jobs_leased ON holdfast.jobs (lease_expires_at) WHERE status = 'processing';
CREATE INDEX jobs_to_cancel ON holdfast.jobs (leased_by) WHERE cancel_requested;

CREATE TABLE holdfast.payloads (
    job_id  uuid PRIMARY KEY,
    args    text NOT NULL
);

CREATE TABLE holdfast.finished (
    id                uuid PRIMARY KEY,
    name              text NOT NULL,
    queue             text NOT NULL,
    owner             text NOT NULL,
    status            text NOT NULL CHECK (status IN ('completed', 'failed', 'cancelled')),
    priority          smallint NOT NULL,
    attempt           integer NOT NULL,
    generation        integer NOT NULL,
    lease_token       bigint NOT NULL,
    losses            integer NOT NULL,
    stages            integer NOT NULL,
    created_at        timestamptz NOT NULL,
    queued_at         timestamptz NOT NULL,
    finished_at       timestamptz NOT NULL,
    started_at        timestamptz,
    last_attempt      integer NOT NULL DEFAULT 0,
    last_attempt_at   timestamptz,
    deadline_at       timestamptz,
    timed_out_token   bigint,
    leased_by         text,
    subject           text,
    version           bigint,
    trace             text,
    result            text,
    failure           text,
    stage             text
);

CREATE INDEX finished_failed ON holdfast.finished (finished_at) WHERE status = 'failed';

CREATE TABLE holdfast.stages (
    job_id       uuid NOT NULL,
    name         text NOT NULL,
    call         text NOT NULL,
    status       text NOT NULL CHECK (status IN ('started', 'done', 'failed')),
    attempt      integer NOT NULL,
    generation   integer NOT NULL,
    lease_token  bigint NOT NULL,
    fingerprint  text NOT NULL,
    stored_at    timestamptz NOT NULL,
    result       text,
    failure      text,
    PRIMARY KEY (job_id, name, call)
);

-- Events that the job's row does not show: the row itself has the current state of the job.
CREATE TABLE holdfast.job_events (
    job_id  uuid NOT NULL,
    seq     bigint GENERATED ALWAYS AS IDENTITY,
    at      timestamptz NOT NULL,
    kind    text NOT NULL,
    meta    text NOT NULL,
    PRIMARY KEY (job_id, seq)
);

-- Keys outlive the jobs they were made for.
CREATE TABLE holdfast.job_keys (
    owner        text NOT NULL,
    name         text NOT NULL,
    key          text NOT NULL,
    job_id       uuid NOT NULL,
    fingerprint  text NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (owner, name, key)
);

CREATE TABLE holdfast.job_versions (
    owner        text NOT NULL,
    name         text NOT NULL,
    subject      text NOT NULL,
    version      bigint NOT NULL,
    job_id       uuid NOT NULL,
    fingerprint  text NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (owner, name, subject, version)
);
