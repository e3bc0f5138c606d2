-- Limits on retries, quarantine, stubs, indexes of ended jobs, and limits by key.

-- Limits on retries, and jobs that crash their workers.
-- failed_runs: runs of this generation that failed or lost their worker; no stage resets it.
-- suspicion: 1, leased after a loss, and not begun: no attempt is spent; 2, running under suspicion.
-- excused: 1, the last loss was caused by another job, and the next claim returns the attempt; 2, it was returned.
ALTER TABLE holdfast_jobs ADD COLUMN failed_runs INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_jobs ADD COLUMN suspicion INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_jobs ADD COLUMN excused INTEGER NOT NULL DEFAULT 0;
CREATE INDEX holdfast_jobs_suspected ON holdfast_jobs (leased_by) WHERE suspicion = 2;
-- Workers that were lost with a suspected job: their leases expire one after the other.
CREATE TABLE holdfast_lost_workers (
    worker   TEXT PRIMARY KEY,
    lost_at  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX holdfast_lost_workers_by_age ON holdfast_lost_workers (lost_at);

-- Stubs: what is left of a purged job while its key, or its version, is still taken. The result is kept as long as
-- the key, so that a repeated submission is answered with it. A separate table: workers of an earlier version, which
-- would take such a row for a complete job, never see it.
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

-- For the retention of stubs, which counts from the end of the job.
CREATE INDEX holdfast_job_stubs_finished ON holdfast_job_stubs (finished_at, id);
CREATE INDEX holdfast_job_stubs_by_name ON holdfast_job_stubs (name, id);
CREATE INDEX holdfast_job_stubs_by_owner ON holdfast_job_stubs (owner, id) WHERE owner <> '';
CREATE INDEX holdfast_job_stubs_by_queue ON holdfast_job_stubs (queue, id) WHERE queue <> 'default';
CREATE INDEX holdfast_job_stubs_failed ON holdfast_job_stubs (id) WHERE status = 'failed';
CREATE INDEX holdfast_job_stubs_cancelled ON holdfast_job_stubs (id) WHERE status = 'cancelled';

-- Lists of ended jobs, for every filter. Each index costs every job that ends, so those of the default owner and
-- queue are in none, and completed jobs in none by status: lists of those are found quickly without.
CREATE INDEX holdfast_finished_by_name ON holdfast_finished (name, id);
CREATE INDEX holdfast_finished_by_owner ON holdfast_finished (owner, id) WHERE owner <> '';
CREATE INDEX holdfast_finished_by_queue ON holdfast_finished (queue, id) WHERE queue <> 'default';
CREATE INDEX holdfast_finished_failed_by_id ON holdfast_finished (id) WHERE status = 'failed';
CREATE INDEX holdfast_finished_failed_by_name ON holdfast_finished (name, id) WHERE status = 'failed';
CREATE INDEX holdfast_finished_cancelled ON holdfast_finished (id) WHERE status = 'cancelled';

-- The order in which a job's stages were written, which does not depend on a clock that may be set back.
ALTER TABLE holdfast_stages ADD COLUMN number INTEGER NOT NULL DEFAULT 0;

-- Letters that may be replayed automatically, by their age: letters that never become due are not in the index.
CREATE INDEX holdfast_dead_letters_replayable ON holdfast_dead_letters (name, last_failure_at, job_id)
    WHERE state = 'new' AND replays = 0 AND instr(failure, '"retryable": true') > 0;

-- Limits by key: the use of the limits of one key is a row of its own, which expires. In the provider's row all keys
-- would be read and written with each of them. Workers of an earlier version continue to store theirs there.
CREATE TABLE holdfast_provider_keys (
    name        TEXT NOT NULL,
    key         TEXT NOT NULL,
    version     INTEGER NOT NULL,
    state       TEXT NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (name, key)
) WITHOUT ROWID;

CREATE INDEX holdfast_provider_keys_expiring ON holdfast_provider_keys (expires_at);

-- The hash of a stage's arguments without those at their default: by it a call is recognised after the stage has got
-- another optional parameter. Empty where an earlier version stored the stage.
ALTER TABLE holdfast_stages ADD COLUMN brief_fingerprint TEXT NOT NULL DEFAULT '';

-- Finds a job by its key alone: the primary key begins with the owner and the name.
CREATE INDEX holdfast_job_keys_by_key ON holdfast_job_keys (key);
