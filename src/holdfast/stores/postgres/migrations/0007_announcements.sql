-- Announcements: that a job has completed, failed, was cancelled, timed out or is retried, and that messages are to be
-- published about it. The statement that makes the transition writes the row, also that of a sweep, which may not know
-- the job's code; a worker that knows it renders the messages afterwards, and deletes the row.
LOCK TABLE holdfast.jobs, holdfast.finished IN ACCESS EXCLUSIVE MODE;

-- announces: what the job announces, the sum of 1 completed, 2 failed, 4 cancelled, 8 timed out, 16 retrying. The rest is
-- set for ended jobs that announce something. runs: how many times it ran in its generation. announced_again: how often
-- its end was announced once more, because its request was received again.
ALTER TABLE holdfast.jobs ADD COLUMN announces smallint NOT NULL DEFAULT 0;
ALTER TABLE holdfast.finished ADD COLUMN announces smallint NOT NULL DEFAULT 0;
ALTER TABLE holdfast.finished ADD COLUMN runs integer NOT NULL DEFAULT 0;
ALTER TABLE holdfast.finished ADD COLUMN announced_again integer NOT NULL DEFAULT 0;

-- attempt: which run of its generation ended. again: 0, or the number of the repetition. due_at: not rendered before; a
-- worker that renders postpones it. tries: raised by each worker that takes it, so that only the last one can delete it.
CREATE TABLE holdfast.announcements (
    sequence    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id      uuid NOT NULL,
    name        text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('completed', 'failed', 'cancelled', 'timed_out', 'retrying')),
    generation  integer NOT NULL,
    attempt     integer NOT NULL,
    again       integer NOT NULL DEFAULT 0,
    failure     text,
    at          timestamptz NOT NULL,
    due_at      timestamptz NOT NULL,
    tries       integer NOT NULL DEFAULT 0,
    UNIQUE (job_id, generation, kind, attempt, again)
);
-- By name, because a worker takes those of the jobs that it knows.
CREATE INDEX announcements_due ON holdfast.announcements (name, due_at, sequence);

-- The ends that are to be announced.
CREATE VIEW holdfast.announced_ends AS
    SELECT job_id, name, kind, generation, attempt, again, failure, at
      FROM (SELECT id AS job_id, name, generation, runs AS attempt, announced_again AS again, failure, finished_at AS at,
                   announces,
                   CASE WHEN status = 'failed' AND timed_out_at IS NOT NULL THEN 'timed_out' ELSE status END AS kind
              FROM holdfast.finished
             WHERE announces <> 0) AS ended
     WHERE announces & CASE kind WHEN 'completed' THEN 1 WHEN 'failed' THEN 2 WHEN 'cancelled' THEN 4 ELSE 8 END <> 0;

CREATE FUNCTION holdfast.announce_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.finished
       SET announces = OLD.announces,
           runs = OLD.failed_runs + CASE WHEN OLD.leased_by IS NOT NULL AND OLD.suspicion <> 1 THEN 1 ELSE 0 END
     WHERE id = OLD.id;
    INSERT INTO holdfast.announcements (job_id, name, kind, generation, attempt, again, failure, at, due_at)
    SELECT job_id, name, kind, generation, attempt, again, failure, at, at
      FROM holdfast.announced_ends
     WHERE job_id = OLD.id
        ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

-- A trigger, because every statement that ends a job announces it, also in a worker of an earlier version. Of the hot
-- table, since the end has its row by then; a job that announces nothing pays for the condition alone.
CREATE TRIGGER announce_end AFTER DELETE ON holdfast.jobs
    FOR EACH ROW WHEN (OLD.announces <> 0) EXECUTE FUNCTION holdfast.announce_end();

CREATE FUNCTION holdfast.announce_accepted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.announcements (job_id, name, kind, generation, attempt, again, failure, at, due_at)
    SELECT job_id, name, kind, generation, attempt, again, failure, at, at
      FROM holdfast.announced_ends
     WHERE job_id = NEW.id
        ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

-- A late result that is accepted completes its job.
CREATE TRIGGER announce_accepted AFTER UPDATE OF status ON holdfast.finished
    FOR EACH ROW WHEN (NEW.status = 'completed' AND NEW.announces <> 0) EXECUTE FUNCTION holdfast.announce_accepted();
