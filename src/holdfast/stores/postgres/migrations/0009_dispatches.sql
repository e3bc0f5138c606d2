-- Dispatches: that a Celery or arq worker was asked to run a ready job. A row is outstanding until its dispatch arrives, or
-- the job is not ready any more. number: how often it was sent. Narrow, and in a table of its own: jobs of queues that
-- Holdfast's own workers serve never touch it.
CREATE TABLE holdfast.dispatches (
    job_id   uuid PRIMARY KEY,
    queue    text NOT NULL,
    sent_at  timestamptz NOT NULL,
    number   integer NOT NULL DEFAULT 1
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX dispatches_outstanding ON holdfast.dispatches (queue);
