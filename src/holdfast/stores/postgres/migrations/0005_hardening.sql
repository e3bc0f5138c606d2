-- All at once, before anything else, and in the order in which workers take them.
LOCK TABLE holdfast.jobs, holdfast.finished, holdfast.stages IN ACCESS EXCLUSIVE MODE;

-- Retries that end, and jobs that kill their workers.
-- failed_runs: runs of this generation that failed or lost their worker; no stage sets it back.
-- suspicion: 1, leased after a loss, and not begun: no attempt is spent; 2, running under suspicion.
-- excused: 1, the last loss is another job's, and the next claim gives the attempt back; 2, it was given back.
ALTER TABLE holdfast.jobs
    ADD COLUMN failed_runs integer NOT NULL DEFAULT 0,
    ADD COLUMN suspicion smallint NOT NULL DEFAULT 0,
    ADD COLUMN excused smallint NOT NULL DEFAULT 0;
CREATE INDEX jobs_suspected ON holdfast.jobs (leased_by) WHERE suspicion = 2;
-- Workers that were lost with a suspect: their leases run out one after the other.
CREATE TABLE holdfast.lost_workers (
    worker   text PRIMARY KEY,
    lost_at  timestamptz NOT NULL
);
-- The hash of a stage's arguments without those at their default: by it a call is known again after the stage
-- has got another optional parameter. Empty where an earlier version stored the stage.
ALTER TABLE holdfast.stages ADD COLUMN brief_fingerprint text NOT NULL DEFAULT '';
