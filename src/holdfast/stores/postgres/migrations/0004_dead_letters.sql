-- Locks all tables first, in the order in which submitters and workers lock them: every statement reads the clock.
LOCK TABLE holdfast.job_keys, holdfast.meta, holdfast.finished IN ACCESS EXCLUSIVE MODE;

-- Dead letters of failed jobs, and their repair. There is one letter for each job, however often it fails: `version`
-- grows with each change, and a step names the version that its actor has read.
CREATE TABLE holdfast.dead_letters (
    job_id            uuid PRIMARY KEY,
    version           integer NOT NULL DEFAULT 1,
    state             text NOT NULL CHECK (state IN ('new', 'triaged', 'remediated', 'validated', 'replaying',
                                                     'verified', 'closed', 'discarded')),
    name              text NOT NULL,
    queue             text NOT NULL,
    owner             text NOT NULL,
    generation        integer NOT NULL,
    stage             text,
    error_class       text NOT NULL,
    fingerprint       text NOT NULL,
    failure           text NOT NULL,
    attempt           integer NOT NULL,
    holds             integer NOT NULL,
    first_reason      text NOT NULL,
    first_failure_at  timestamptz NOT NULL,
    last_failure_at   timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    kept_since        timestamptz NOT NULL,
    deaths            integer NOT NULL DEFAULT 1,
    replays           integer NOT NULL DEFAULT 0,
    escalated         boolean NOT NULL DEFAULT false,
    repeated          boolean NOT NULL DEFAULT false,
    cause             text,
    evidence          text,
    safe              text,
    plan              text,
    notes             text,
    corrected         boolean NOT NULL DEFAULT false
);

-- The oldest first, for their retention.
CREATE INDEX dead_letters_kept ON holdfast.dead_letters (kept_since, job_id);
CREATE INDEX dead_letters_last ON holdfast.dead_letters (last_failure_at);
CREATE INDEX dead_letters_alike ON holdfast.dead_letters (fingerprint);
CREATE INDEX dead_letters_planned ON holdfast.dead_letters (plan, state, job_id) WHERE plan IS NOT NULL;

CREATE TABLE holdfast.letter_steps (
    job_id  uuid NOT NULL,
    seq     bigint GENERATED ALWAYS AS IDENTITY,
    at      timestamptz NOT NULL,
    state   text NOT NULL,
    actor   text NOT NULL,
    reason  text NOT NULL,
    meta    text NOT NULL,
    PRIMARY KEY (job_id, seq)
);

-- Finds the keys of a job, which are archived and restored with it.
CREATE INDEX job_keys_of_job ON holdfast.job_keys (job_id);

-- Replay plans and their progress, updated only by a session that has read the current version.
CREATE TABLE holdfast.plans (
    token       text PRIMARY KEY,
    version     integer NOT NULL,
    running     boolean NOT NULL,
    state       text NOT NULL,
    updated_at  timestamptz NOT NULL
);

CREATE INDEX plans_running ON holdfast.plans (token) WHERE running;

-- Tickets. The process that sends a notification postpones `due_at` meanwhile. A ticket that is `logged` is in a
-- worker's log already, and one that is `quiet` was suppressed in favour of another ticket of its group. A ticket
-- that was not notified outlives its letter, and then has all facts in `facts`. Its `rank` is its urgency: 0 a page,
-- 1 an alert or unspecified, 2 a review.
CREATE TABLE holdfast.tickets (
    id           text PRIMARY KEY,
    kind         text NOT NULL,
    rank         smallint NOT NULL DEFAULT 1 CHECK (rank IN (0, 1, 2)),
    raised_at    timestamptz NOT NULL,
    job_id       uuid,
    fingerprint  text,
    facts        text NOT NULL DEFAULT '{}',
    due_at       timestamptz NOT NULL,
    told_at      timestamptz,
    tries        integer NOT NULL DEFAULT 0,
    logged       boolean NOT NULL DEFAULT false,
    quiet        boolean NOT NULL DEFAULT false
);

CREATE INDEX tickets_due ON holdfast.tickets (rank, due_at, id) WHERE told_at IS NULL;
CREATE INDEX tickets_told ON holdfast.tickets (fingerprint, told_at) WHERE told_at IS NOT NULL AND NOT quiet;
CREATE INDEX tickets_by_job ON holdfast.tickets (job_id);

CREATE TABLE holdfast.alarms (
    name       text PRIMARY KEY,
    raised_at  timestamptz NOT NULL
);

-- The original arguments of jobs whose arguments were corrected.
CREATE TABLE holdfast.original_args (
    job_id  uuid PRIMARY KEY,
    args    text NOT NULL
);

-- The key of the hashes that replace redacted values: the same secret has the same hash only in this database. Two
-- random ids have 244 random bits; the hash spreads three of them over all 256.
ALTER TABLE holdfast.meta ADD COLUMN redaction_key text;
UPDATE holdfast.meta
   SET redaction_key = encode(
       sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 'hex');
ALTER TABLE holdfast.meta ALTER COLUMN redaction_key SET NOT NULL;

-- Letters are written by triggers, with the end of the job: workers of an earlier version, which do not know letters,
-- end jobs too, and so do deadlines. Nearly every job completes, and then only the conditions of the triggers are
-- evaluated, which read the row alone.
--
-- Lock order: every session locks plans first, then ended jobs, then letters, then the rest, each of them in the
-- order of their ids. These functions run when the ended rows are locked already, so they keep to it. No other
-- session can see, or wait for, the rows that a worker has just ended; and no two workers end the same job.
CREATE FUNCTION holdfast.bury() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    told       json;
    class      text := 'UNKNOWN';
    place      text;
    message    text := '';
    retryable  boolean := true;
    level      text;
    past       record;
    buried     record;
BEGIN
    -- A failure that cannot be read here must not keep its job from ending: text may hold what JSON can say and
    -- PostgreSQL cannot.
    BEGIN
        told := NEW.failure::json;
        class := coalesce(told ->> 'error_class', class);
        place := nullif(told ->> 'fingerprint', '');
        retryable := coalesce((told ->> 'retryable')::boolean, retryable);
        level := told #>> '{context,level}';
        message := coalesce(told ->> 'message', message);
    EXCEPTION WHEN data_exception THEN
        message := 'its failure cannot be read by the database';
    END;

    -- A stage that fails sets its job's count of attempts back, and keeps its own.
    SELECT count(*) FILTER (WHERE kind = 'held' AND meta LIKE '%"held_by"%') AS holds,
           min(at) FILTER (WHERE kind = 'retry' AND at >= NEW.queued_at) AS first_failure_at,
           (SELECT max(stages.attempt)
              FROM holdfast.stages
             WHERE stages.job_id = NEW.id
               AND stages.status = 'failed'
               AND CASE call WHEN '#1' THEN name ELSE name || '[' || call || ']' END = NEW.stage) AS attempt
      INTO past
      FROM holdfast.job_events
     WHERE job_id = NEW.id;

    INSERT INTO holdfast.dead_letters AS letter (
        job_id, state, name, queue, owner, generation, stage, error_class, fingerprint, failure, attempt, holds,
        first_reason, first_failure_at, last_failure_at, updated_at, kept_since)
    VALUES (
        NEW.id, 'new', NEW.name, NEW.queue, NEW.owner, NEW.generation, NEW.stage, class, coalesce(place, class),
        coalesce(NEW.failure, '{}'), coalesce(past.attempt, NEW.attempt), past.holds,
        class, coalesce(past.first_failure_at, NEW.finished_at), NEW.finished_at, NEW.finished_at, NEW.finished_at)
    ON CONFLICT (job_id) DO UPDATE
       SET version = letter.version + 1, state = 'new', name = excluded.name, queue = excluded.queue,
           owner = excluded.owner, generation = excluded.generation, stage = excluded.stage,
           error_class = excluded.error_class, fingerprint = excluded.fingerprint, failure = excluded.failure,
           attempt = excluded.attempt, holds = excluded.holds,
           last_failure_at = excluded.last_failure_at, updated_at = excluded.updated_at,
           kept_since = excluded.kept_since,
           deaths = letter.deaths + 1,
           repeated = letter.state = 'replaying' AND letter.fingerprint = excluded.fingerprint,
           escalated = letter.escalated
               OR (letter.state = 'replaying' AND letter.error_class = excluded.error_class AND NOT retryable),
           cause = NULL, evidence = NULL, safe = NULL, notes = NULL
    RETURNING letter.deaths, letter.escalated, letter.fingerprint INTO buried;

    INSERT INTO holdfast.letter_steps (job_id, at, state, actor, reason, meta)
    VALUES (NEW.id, NEW.finished_at, 'new', 'holdfast', message,
            json_build_object('error_class', class, 'generation', NEW.generation)::text);

    -- One of that name is left from a letter that was deleted. If it was told, it told of an earlier failure.
    INSERT INTO holdfast.tickets AS ticket (id, kind, rank, raised_at, job_id, fingerprint, due_at)
    VALUES (NEW.id::text || ':' || buried.deaths, CASE WHEN buried.escalated THEN 'escalated' ELSE 'dead letter' END,
            CASE WHEN buried.escalated OR level = 'page' THEN 0 WHEN level = 'review' THEN 2 ELSE 1 END,
            NEW.finished_at, NEW.id, buried.fingerprint, NEW.finished_at)
    ON CONFLICT (id) DO UPDATE
       SET kind = excluded.kind, rank = excluded.rank, raised_at = excluded.raised_at,
           fingerprint = excluded.fingerprint, facts = '{}',
           due_at = excluded.due_at, told_at = NULL, tries = 0, logged = false, quiet = false
     WHERE ticket.told_at IS NOT NULL;
    RETURN NULL;
END
$$;

CREATE TRIGGER bury AFTER INSERT ON holdfast.finished
    FOR EACH ROW WHEN (NEW.status = 'failed') EXECUTE FUNCTION holdfast.bury();

-- A job that was never replayed is of the first generation. One that completes although its letter is open was
-- retried by a process of the previous version, which does not know letters: nothing is left to repair.
CREATE FUNCTION holdfast.verify_letter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WITH moved AS (
        UPDATE holdfast.dead_letters
           SET version = version + 1, updated_at = NEW.finished_at,
               state = CASE WHEN state <> 'replaying' THEN 'closed'
                            WHEN NEW.status = 'completed' THEN 'verified'
                            ELSE 'discarded'
                       END,
               notes = CASE WHEN state = 'replaying' THEN notes ELSE 'its job completed' END,
               plan = CASE WHEN state = 'replaying' THEN plan END
         WHERE job_id = NEW.id
           AND (state = 'replaying'
                OR (NEW.status = 'completed' AND state IN ('new', 'triaged', 'remediated', 'validated')))
        RETURNING job_id, state
    )
    INSERT INTO holdfast.letter_steps (job_id, at, state, actor, reason, meta)
    SELECT job_id, NEW.finished_at, state, 'holdfast',
           CASE NEW.status WHEN 'completed' THEN 'its job completed' ELSE 'its job was cancelled' END,
           json_build_object('generation', NEW.generation)::text
      FROM moved;
    RETURN NULL;
END
$$;

CREATE TRIGGER verify_letter AFTER INSERT ON holdfast.finished
    FOR EACH ROW WHEN (NEW.generation > 1 AND NEW.status <> 'failed') EXECUTE FUNCTION holdfast.verify_letter();

CREATE FUNCTION holdfast.close_letter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    WITH moved AS (
        UPDATE holdfast.dead_letters
           SET version = version + 1, updated_at = NEW.finished_at, state = 'closed', plan = NULL,
               notes = 'its late result was accepted'
         WHERE job_id = NEW.id
           AND state IN ('new', 'triaged', 'remediated', 'validated', 'discarded')
        RETURNING job_id
    )
    INSERT INTO holdfast.letter_steps (job_id, at, state, actor, reason, meta)
    SELECT job_id, NEW.finished_at, 'closed', 'holdfast', 'its late result was accepted', '{}' FROM moved;
    RETURN NULL;
END
$$;

CREATE TRIGGER close_letter AFTER UPDATE OF status ON holdfast.finished
    FOR EACH ROW WHEN (NEW.status = 'completed') EXECUTE FUNCTION holdfast.close_letter();

-- A late result changes the letter: a process that has archived it without the result must not delete it.
CREATE FUNCTION holdfast.note_late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.dead_letters SET version = version + 1 WHERE job_id = NEW.id;
    RETURN NULL;
END
$$;

CREATE TRIGGER note_late AFTER UPDATE OF late_result ON holdfast.finished
    FOR EACH ROW WHEN (NEW.late_result IS NOT NULL AND NEW.status = 'failed') EXECUTE FUNCTION holdfast.note_late();
