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
-- The hash of a stage's arguments without those at their default: by it a call is known again after the stage
-- has got another optional parameter. Empty where an earlier version stored the stage.
ALTER TABLE holdfast_stages ADD COLUMN brief_fingerprint TEXT NOT NULL DEFAULT '';
