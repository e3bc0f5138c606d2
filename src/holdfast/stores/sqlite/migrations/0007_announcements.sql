-- Announcements: that a job has completed, failed, was cancelled, timed out or is retried, and that messages are to be
-- published about it. The statement that makes the transition writes the row, also that of a sweep, which may not know
-- the job's code; a worker that knows it renders the messages afterwards, and deletes the row.

-- announces: what the job announces, the sum of 1 completed, 2 failed, 4 cancelled, 8 timed out, 16 retrying. The rest is
-- set for ended jobs that announce something. runs: how many times it ran in its generation. announced_again: how often
-- its end was announced once more, because its request was received again.
ALTER TABLE holdfast_jobs ADD COLUMN announces INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_finished ADD COLUMN announces INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_finished ADD COLUMN runs INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_finished ADD COLUMN announced_again INTEGER NOT NULL DEFAULT 0;

-- attempt: which run of its generation ended. again: 0, or the number of the repetition. due_at: not rendered before; a
-- worker that renders postpones it. tries: raised by each worker that takes it, so that only the last one can delete it.
CREATE TABLE holdfast_announcements (
    sequence    INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id      TEXT NOT NULL,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('completed', 'failed', 'cancelled', 'timed_out', 'retrying')),
    generation  INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    again       INTEGER NOT NULL DEFAULT 0,
    failure     TEXT,
    at          INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    tries       INTEGER NOT NULL DEFAULT 0,
    UNIQUE (job_id, generation, kind, attempt, again)
);
-- By name, because a worker takes those of the jobs that it knows.
CREATE INDEX holdfast_announcements_due ON holdfast_announcements (name, due_at, sequence);

-- The ends that are to be announced.
CREATE VIEW holdfast_announced_ends AS
    SELECT job_id, name, kind, generation, attempt, again, failure, at
      FROM (SELECT id AS job_id, name, generation, runs AS attempt, announced_again AS again, failure, finished_at AS at,
                   announces,
                   CASE WHEN status = 'failed' AND timed_out_at IS NOT NULL THEN 'timed_out' ELSE status END AS kind
              FROM holdfast_finished
             WHERE announces <> 0)
     WHERE announces & CASE kind WHEN 'completed' THEN 1 WHEN 'failed' THEN 2 WHEN 'cancelled' THEN 4 ELSE 8 END <> 0;

-- Announces the end of a job. A trigger of its own, which the others call by inserting into the view: SQLite prepares the
-- registers of a trigger for every row, even if its condition is false, and these are many.
CREATE TRIGGER holdfast_announce INSTEAD OF INSERT ON holdfast_announced_ends
BEGIN
    UPDATE holdfast_finished
       SET runs = coalesce((SELECT failed_runs + (leased_by IS NOT NULL AND suspicion <> 1)
                              FROM holdfast_jobs
                             WHERE id = NEW.job_id), runs)
     WHERE id = NEW.job_id;

    INSERT INTO holdfast_announcements (job_id, name, kind, generation, attempt, again, failure, at, due_at)
    SELECT job_id, name, kind, generation, attempt, again, failure, at, at
      FROM holdfast_announced_ends
     WHERE job_id = NEW.job_id
        ON CONFLICT DO NOTHING;
END;

-- A trigger, because every statement that ends a job announces it. A job that announces nothing pays for the condition
-- alone. Of the ended jobs, which are copied before they are deleted: SQLite reads all columns of a deleted row if a
-- trigger reads one after the 32nd.
CREATE TRIGGER holdfast_announce_end AFTER INSERT ON holdfast_finished WHEN NEW.announces <> 0
BEGIN
    INSERT INTO holdfast_announced_ends (job_id) VALUES (NEW.id);
END;

-- A late result that is accepted completes its job.
CREATE TRIGGER holdfast_announce_accepted AFTER UPDATE OF status ON holdfast_finished
WHEN NEW.status = 'completed' AND NEW.announces <> 0
BEGIN
    INSERT INTO holdfast_announced_ends (job_id) VALUES (NEW.id);
END;
