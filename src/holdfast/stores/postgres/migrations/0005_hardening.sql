-- Locks all tables first, in the order in which workers lock them.
LOCK TABLE holdfast.jobs, holdfast.finished, holdfast.stages IN ACCESS EXCLUSIVE MODE;

-- Limits on retries, and jobs that crash their workers.
-- failed_runs: runs of this generation that failed or lost their worker; no stage resets it.
-- suspicion: 1, leased after a loss, and not begun: no attempt is spent; 2, running under suspicion.
-- excused: 1, the last loss was caused by another job, and the next claim returns the attempt; 2, it was returned.
ALTER TABLE holdfast.jobs
    ADD COLUMN failed_runs integer NOT NULL DEFAULT 0,
    ADD COLUMN suspicion smallint NOT NULL DEFAULT 0,
    ADD COLUMN excused smallint NOT NULL DEFAULT 0;
CREATE INDEX jobs_suspected ON holdfast.jobs (leased_by) WHERE suspicion = 2;
-- Workers that were lost with a suspected job: their leases expire one after the other.
CREATE TABLE holdfast.lost_workers (
    worker   text PRIMARY KEY,
    lost_at  timestamptz NOT NULL
);
CREATE INDEX lost_workers_by_age ON holdfast.lost_workers (lost_at);

-- Stubs: what is left of a purged job while its key, or its version, is still taken. The result is kept as long as
-- the key, so that a repeated submission is answered with it. A separate table: workers of an earlier version, which
-- would take such a row for a complete job, never see it.
CREATE TABLE holdfast.job_stubs (
    id            uuid PRIMARY KEY,
    name          text NOT NULL,
    queue         text NOT NULL,
    owner         text NOT NULL,
    status        text NOT NULL CHECK (status IN ('completed', 'failed', 'cancelled')),
    priority      smallint NOT NULL,
    attempt       integer NOT NULL,
    last_attempt  integer NOT NULL,
    generation    integer NOT NULL,
    lease_token   bigint NOT NULL,
    created_at    timestamptz NOT NULL,
    queued_at     timestamptz NOT NULL,
    started_at    timestamptz,
    finished_at   timestamptz NOT NULL,
    timed_out_at  timestamptz,
    purged_at     timestamptz NOT NULL,
    subject       text,
    version       bigint,
    trace         text,
    result        text,
    failure       text,
    stage         text
);

-- For the retention of stubs, which counts from the end of the job.
CREATE INDEX job_stubs_finished ON holdfast.job_stubs (finished_at, id);
CREATE INDEX job_stubs_by_name ON holdfast.job_stubs (name, id);
CREATE INDEX job_stubs_by_owner ON holdfast.job_stubs (owner, id) WHERE owner <> '';
CREATE INDEX job_stubs_by_queue ON holdfast.job_stubs (queue, id) WHERE queue <> 'default';
CREATE INDEX job_stubs_failed ON holdfast.job_stubs (id) WHERE status = 'failed';
CREATE INDEX job_stubs_cancelled ON holdfast.job_stubs (id) WHERE status = 'cancelled';

-- Lists of ended jobs, for every filter. Each index costs every job that ends, so those of the default owner and
-- queue are in none, and completed jobs in none by status: lists of those are found quickly without.
CREATE INDEX finished_by_name ON holdfast.finished (name, id);
CREATE INDEX finished_by_owner ON holdfast.finished (owner, id) WHERE owner <> '';
CREATE INDEX finished_by_queue ON holdfast.finished (queue, id) WHERE queue <> 'default';
CREATE INDEX finished_failed_by_id ON holdfast.finished (id) WHERE status = 'failed';
CREATE INDEX finished_failed_by_name ON holdfast.finished (name, id) WHERE status = 'failed';
CREATE INDEX finished_cancelled ON holdfast.finished (id) WHERE status = 'cancelled';

-- The order in which a job's stages were written, which does not depend on a clock that may be set back.
ALTER TABLE holdfast.stages ADD COLUMN number integer NOT NULL DEFAULT 0;

-- Letters that may be replayed automatically, by their age: letters that never become due are not in the index.
CREATE INDEX dead_letters_replayable ON holdfast.dead_letters (name, last_failure_at, job_id)
    WHERE state = 'new' AND replays = 0 AND strpos(failure, '"retryable": true') > 0;

-- Limits by key: the use of the limits of one key is a row of its own, which expires. In the provider's row all keys
-- would be read and written with each of them. Workers of an earlier version continue to store theirs there.
CREATE TABLE holdfast.provider_keys (
    name        text NOT NULL,
    key         text NOT NULL,
    version     bigint NOT NULL,
    state       text NOT NULL,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (name, key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE INDEX provider_keys_expiring ON holdfast.provider_keys (expires_at);

-- The hash of a stage's arguments without those at their default: by it a call is recognised after the stage has got
-- another optional parameter. Empty where an earlier version stored the stage.
ALTER TABLE holdfast.stages ADD COLUMN brief_fingerprint text NOT NULL DEFAULT '';

-- Finds a job by its key alone: the primary key begins with the owner and the name.
CREATE INDEX job_keys_by_key ON holdfast.job_keys (key);
