-- Dispatches: that a Celery or arq worker was asked to run a ready job. A row is outstanding until its dispatch arrives, or
-- the job is not ready any more. number: how often it was sent. Narrow, and in a table of its own: jobs of queues that
-- Holdfast's own workers serve never touch it.
CREATE TABLE holdfast_dispatches (
    job_id   TEXT PRIMARY KEY,
    queue    TEXT NOT NULL,
    sent_at  INTEGER NOT NULL,
    number   INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;
CREATE INDEX holdfast_dispatches_outstanding ON holdfast_dispatches (queue);
