-- Locks all tables first, in the order in which workers lock them: sessions that upgrade a weaker lock to a stronger
-- one would deadlock.
LOCK TABLE holdfast.jobs, holdfast.finished IN ACCESS EXCLUSIVE MODE;

-- Deadlines: a job that has not ended by then fails, and a result that comes later is kept as late.

CREATE INDEX jobs_deadline ON holdfast.jobs (deadline_at) WHERE deadline_at IS NOT NULL;

ALTER TABLE holdfast.finished
    ADD COLUMN timed_out_at timestamptz,
    ADD COLUMN late_at timestamptz,
    ADD COLUMN late_result text;

-- Waits: a job that sleeps, or waits for a signal or for other jobs, is parked like one that waits for its retry, but
-- a signal or an end may wake it early. `signals` counts the signals that it was sent, `pending` the jobs for which
-- it waits; `has_parents` says that other jobs wait for it.
ALTER TABLE holdfast.jobs
    ADD COLUMN waiting boolean NOT NULL DEFAULT false,
    ADD COLUMN signals integer NOT NULL DEFAULT 0,
    ADD COLUMN pending integer NOT NULL DEFAULT 0,
    ADD COLUMN has_parents boolean NOT NULL DEFAULT false;

CREATE TABLE holdfast.signals (
    job_id   uuid NOT NULL,
    number   integer NOT NULL,
    name     text NOT NULL,
    data     text NOT NULL,
    sent_at  timestamptz NOT NULL,
    PRIMARY KEY (job_id, number)
);

CREATE TABLE holdfast.awaited (
    child_id   uuid NOT NULL,
    parent_id  uuid NOT NULL,
    PRIMARY KEY (child_id, parent_id)
);

CREATE INDEX awaited_by_parent ON holdfast.awaited (parent_id);

-- Ends of jobs that were not yet delivered to the jobs that wait for them; written together with the end.
CREATE TABLE holdfast.awaited_ends (
    child_id  uuid PRIMARY KEY
);

-- A trigger, because workers of the earlier version, which do not know this table, end such jobs too.
CREATE FUNCTION holdfast.note_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.awaited_ends (child_id) VALUES (OLD.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE TRIGGER note_end AFTER DELETE ON holdfast.jobs
    FOR EACH ROW WHEN (OLD.has_parents) EXECUTE FUNCTION holdfast.note_end();

-- Paused queues, and the last tick of each schedule.
CREATE TABLE holdfast.paused_queues (
    queue      text PRIMARY KEY,
    paused_at  timestamptz NOT NULL,
    actor      text NOT NULL,
    reason     text NOT NULL
);

CREATE TABLE holdfast.schedules (
    name     text PRIMARY KEY,
    last_at  timestamptz NOT NULL
);
