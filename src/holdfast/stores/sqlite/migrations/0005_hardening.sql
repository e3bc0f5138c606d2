-- What hardening under load needs. Each part says what it is for.

-- Retries that end, and jobs that kill their workers.
-- failed_runs: runs of this generation that failed or lost their worker; no stage sets it back.
-- suspicion: 1, leased after a loss, and not begun: no attempt is spent; 2, running under suspicion.
-- excused: 1, the last loss is another job's, and the next claim gives the attempt back; 2, it was given back.
ALTER TABLE holdfast_jobs ADD COLUMN failed_runs INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_jobs ADD COLUMN suspicion INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_jobs ADD COLUMN excused INTEGER NOT NULL DEFAULT 0;
CREATE INDEX holdfast_jobs_suspected ON holdfast_jobs (leased_by) WHERE suspicion = 2;
-- Workers that were lost with a suspect: their leases run out one after the other.
CREATE TABLE holdfast_lost_workers (
    worker   TEXT PRIMARY KEY,
    lost_at  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX holdfast_lost_workers_by_age ON holdfast_lost_workers (lost_at);

-- Stubs: what is left of a job that was purged while its key, or its version, is still taken. The result lives as long
-- as the key, so that a submission which comes again is answered with it. A table of its own: workers of an earlier
-- version, which would take such a row for a whole job, never see it.
CREATE TABLE holdfast_job_stubs (
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    queue         TEXT NOT NULL,
    owner         TEXT NOT NULL,
    status        TEXT NOT NULL CHECK (status IN ('completed', 'failed', 'cancelled')),
    priority      INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    last_attempt  INTEGER NOT NULL,
    generation    INTEGER NOT NULL,
    lease_token   INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    queued_at     INTEGER NOT NULL,
    started_at    INTEGER,
    finished_at   INTEGER NOT NULL,
    timed_out_at  INTEGER,
    purged_at     INTEGER NOT NULL,
    subject       TEXT,
    version       INTEGER,
    trace         TEXT,
    result        TEXT,
    failure       TEXT,
    stage         TEXT
) WITHOUT ROWID;

-- For their retention, which counts from the end of the job.
CREATE INDEX holdfast_job_stubs_finished ON holdfast_job_stubs (finished_at, id);
CREATE INDEX holdfast_job_stubs_by_name ON holdfast_job_stubs (name, id);
CREATE INDEX holdfast_job_stubs_by_owner ON holdfast_job_stubs (owner, id) WHERE owner <> '';
CREATE INDEX holdfast_job_stubs_by_queue ON holdfast_job_stubs (queue, id) WHERE queue <> 'default';
CREATE INDEX holdfast_job_stubs_failed ON holdfast_job_stubs (id) WHERE status = 'failed';
CREATE INDEX holdfast_job_stubs_cancelled ON holdfast_job_stubs (id) WHERE status = 'cancelled';

-- Lists of ended jobs, whatever they are filtered by. Each index costs every job that ends, so those of the default
-- owner and queue are in none, and completed jobs in none by status: lists of those find them soon without.
CREATE INDEX holdfast_finished_by_name ON holdfast_finished (name, id);
CREATE INDEX holdfast_finished_by_owner ON holdfast_finished (owner, id) WHERE owner <> '';
CREATE INDEX holdfast_finished_by_queue ON holdfast_finished (queue, id) WHERE queue <> 'default';
CREATE INDEX holdfast_finished_failed_by_id ON holdfast_finished (id) WHERE status = 'failed';
CREATE INDEX holdfast_finished_failed_by_name ON holdfast_finished (name, id) WHERE status = 'failed';
CREATE INDEX holdfast_finished_cancelled ON holdfast_finished (id) WHERE status = 'cancelled';

-- The order in which a job's stages were written, which no clock that is set back can change.
ALTER TABLE holdfast_stages ADD COLUMN number INTEGER NOT NULL DEFAULT 0;

-- Letters that may be replayed without a person, by their age: what is never due is in no round's way.
CREATE INDEX holdfast_dead_letters_replayable ON holdfast_dead_letters (name, last_failure_at, job_id)
    WHERE state = 'new' AND replays = 0 AND instr(failure, '"retryable": true') > 0;

-- Limits by key: what is given out of the limits of one key is a row of its own, which expires. In the provider's row
-- all keys would be read and written with each of them. Workers of an earlier version go on to keep theirs there.
CREATE TABLE holdfast_provider_keys (
    name        TEXT NOT NULL,
    key         TEXT NOT NULL,
    version     INTEGER NOT NULL,
    state       TEXT NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (name, key)
) WITHOUT ROWID;

CREATE INDEX holdfast_provider_keys_expiring ON holdfast_provider_keys (expires_at);

-- The hash of a stage's arguments without those at their default: by it a call is known again after the stage
-- has got another optional parameter. Empty where an earlier version stored the stage.
ALTER TABLE holdfast_stages ADD COLUMN brief_fingerprint TEXT NOT NULL DEFAULT '';

-- A job is found by its key alone: the primary key has the owner and the name first.
CREATE INDEX holdfast_job_keys_by_key ON holdfast_job_keys (key);
