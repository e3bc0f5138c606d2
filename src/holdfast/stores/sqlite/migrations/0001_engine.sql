-- The engine's tables. A live job has a narrow row in holdfast_jobs; its arguments, stage results and history are in
-- other tables. When it ends it moves to holdfast_finished, so that a claim never reads it. Instants and durations
-- are whole microseconds.

CREATE TABLE holdfast_meta (
    only_row        INTEGER PRIMARY KEY CHECK (only_row = 1),
    schema_version  INTEGER NOT NULL,
    min_compatible  INTEGER NOT NULL
);

INSERT INTO holdfast_meta (only_row, schema_version, min_compatible) VALUES (1, 0, 0);

CREATE TABLE holdfast_jobs (
    id                TEXT PRIMARY KEY,
    name              TEXT NOT NULL,
    queue             TEXT NOT NULL,
    owner             TEXT NOT NULL,
    status            TEXT NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'processing')),
    priority          INTEGER NOT NULL,
    attempt           INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    generation        INTEGER NOT NULL DEFAULT 1,
    lease_token       INTEGER NOT NULL DEFAULT 0,
    losses            INTEGER NOT NULL DEFAULT 0,
    stages            INTEGER NOT NULL DEFAULT 0,
    cancel_requested  INTEGER NOT NULL DEFAULT 0,
    created_at        INTEGER NOT NULL,
    queued_at         INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    started_at        INTEGER,
    last_attempt      INTEGER NOT NULL DEFAULT 0,
    last_attempt_at   INTEGER,
    retry_after       INTEGER,
    lease_expires_at  INTEGER,
    deadline_at       INTEGER,
    timed_out_token   INTEGER,
    leased_by         TEXT,
    subject           TEXT,
    version           INTEGER,
    trace             TEXT,
    CHECK ((status = 'processing') = (leased_by IS NOT NULL)
           AND (leased_by IS NULL) = (lease_expires_at IS NULL))
) WITHOUT ROWID;

-- Ready jobs only, in the order in which they are claimed.
CREATE INDEX holdfast_jobs_ready ON holdfast_jobs (queue, priority DESC, created_at, id)
    WHERE status = 'queued' AND retry_after IS NULL;
-- Parked jobs: the claim never reads them.
CREATE INDEX holdfast_jobs_parked ON holdfast_jobs (retry_after)
    WHERE status = 'queued' AND retry_after IS NOT NULL;
CREATE INDEX holdfast_jobs_leased ON holdfast_jobs (lease_expires_at) WHERE status = 'processing';
CREATE INDEX holdfast_jobs_to_cancel ON holdfast_jobs (leased_by) WHERE cancel_requested = 1;

CREATE TABLE holdfast_payloads (
    job_id  TEXT PRIMARY KEY,
    args    TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE holdfast_finished (
    id                TEXT PRIMARY KEY,
    name              TEXT NOT NULL,
    queue             TEXT NOT NULL,
    owner             TEXT NOT NULL,
    status            TEXT NOT NULL CHECK (status IN ('completed', 'failed', 'cancelled')),
    priority          INTEGER NOT NULL,
    attempt           INTEGER NOT NULL,
    generation        INTEGER NOT NULL,
    lease_token       INTEGER NOT NULL,
    losses            INTEGER NOT NULL,
    stages            INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    queued_at         INTEGER NOT NULL,
    finished_at       INTEGER NOT NULL,
    started_at        INTEGER,
    last_attempt      INTEGER NOT NULL DEFAULT 0,
    last_attempt_at   INTEGER,
    deadline_at       INTEGER,
    timed_out_token   INTEGER,
    leased_by         TEXT,
    subject           TEXT,
    version           INTEGER,
    trace             TEXT,
    result            TEXT,
    failure           TEXT,
    stage             TEXT
) WITHOUT ROWID;

CREATE INDEX holdfast_finished_failed ON holdfast_finished (finished_at) WHERE status = 'failed';

CREATE TABLE holdfast_stages (
    job_id       TEXT NOT NULL,
    name         TEXT NOT NULL,
    call         TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('started', 'done', 'failed')),
    attempt      INTEGER NOT NULL,
    generation   INTEGER NOT NULL,
    lease_token  INTEGER NOT NULL,
    fingerprint  TEXT NOT NULL,
    stored_at    INTEGER NOT NULL,
    result       TEXT,
    failure      TEXT,
    PRIMARY KEY (job_id, name, call)
) WITHOUT ROWID;

-- Events that the job's row does not show: the row itself has the current state of the job.
CREATE TABLE holdfast_job_events (
    seq     INTEGER PRIMARY KEY,
    job_id  TEXT NOT NULL,
    at      INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    meta    TEXT NOT NULL
);

CREATE INDEX holdfast_job_events_of_job ON holdfast_job_events (job_id, seq);

-- Keys outlive the jobs they were made for.
CREATE TABLE holdfast_job_keys (
    owner        TEXT NOT NULL,
    name         TEXT NOT NULL,
    key          TEXT NOT NULL,
    job_id       TEXT NOT NULL,
    fingerprint  TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (owner, name, key)
) WITHOUT ROWID;

CREATE TABLE holdfast_job_versions (
    owner        TEXT NOT NULL,
    name         TEXT NOT NULL,
    subject      TEXT NOT NULL,
    version      INTEGER NOT NULL,
    job_id       TEXT NOT NULL,
    fingerprint  TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (owner, name, subject, version)
) WITHOUT ROWID;
