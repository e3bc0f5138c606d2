-- Dead letters of failed jobs, and their repair. There is one for each job, however often it fails; `version` grows
-- with every change, and `kept_since` is when its retention starts.
CREATE TABLE holdfast_dead_letters (
    job_id            TEXT PRIMARY KEY,
    version           INTEGER NOT NULL,
    state             TEXT NOT NULL CHECK (state IN ('new', 'triaged', 'remediated', 'validated', 'replaying',
                                                     'verified', 'closed', 'discarded')),
    name              TEXT NOT NULL,
    queue             TEXT NOT NULL,
    owner             TEXT NOT NULL,
    generation        INTEGER NOT NULL,
    stage             TEXT,
    error_class       TEXT NOT NULL,
    fingerprint       TEXT NOT NULL,
    failure           TEXT NOT NULL,
    attempt           INTEGER NOT NULL,
    holds             INTEGER NOT NULL,
    first_reason      TEXT NOT NULL,
    first_failure_at  INTEGER NOT NULL,
    last_failure_at   INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    kept_since        INTEGER NOT NULL,
    deaths            INTEGER NOT NULL DEFAULT 1,
    replays           INTEGER NOT NULL DEFAULT 0,
    escalated         INTEGER NOT NULL DEFAULT 0,
    repeated          INTEGER NOT NULL DEFAULT 0,
    cause             TEXT,
    evidence          TEXT,
    safe              TEXT,
    plan              TEXT,
    notes             TEXT,
    corrected         INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE INDEX holdfast_dead_letters_kept ON holdfast_dead_letters (kept_since);
CREATE INDEX holdfast_dead_letters_failed ON holdfast_dead_letters (last_failure_at);
CREATE INDEX holdfast_dead_letters_alike ON holdfast_dead_letters (fingerprint);
CREATE INDEX holdfast_dead_letters_planned ON holdfast_dead_letters (plan) WHERE plan IS NOT NULL;

CREATE TABLE holdfast_letter_steps (
    job_id  TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    state   TEXT NOT NULL,
    actor   TEXT NOT NULL,
    reason  TEXT NOT NULL,
    meta    TEXT NOT NULL,
    PRIMARY KEY (job_id, seq)
) WITHOUT ROWID;

-- Finds the keys of a job, which are archived and restored with it.
CREATE INDEX holdfast_job_keys_of_job ON holdfast_job_keys (job_id);

-- Replay plans and their progress, updated only by a process that has read the current version.
CREATE TABLE holdfast_plans (
    token       TEXT PRIMARY KEY,
    version     INTEGER NOT NULL,
    running     INTEGER NOT NULL,
    state       TEXT NOT NULL,
    updated_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX holdfast_plans_running ON holdfast_plans (token) WHERE running = 1;

-- Tickets. The process that sends a notification postpones `due_at`, so that no other process does so meanwhile. A
-- ticket that is `logged` is in a worker's log already, and one that is `quiet` was suppressed in favour of another
-- ticket of its group. A ticket that was not notified outlives its letter, and then has all facts in `facts`. Its
-- `rank` is its urgency: 0 a page, 1 an alert or unspecified, 2 a review.
CREATE TABLE holdfast_tickets (
    id           TEXT PRIMARY KEY,
    kind         TEXT NOT NULL,
    rank         INTEGER NOT NULL DEFAULT 1 CHECK (rank IN (0, 1, 2)),
    raised_at    INTEGER NOT NULL,
    job_id       TEXT,
    fingerprint  TEXT,
    facts        TEXT NOT NULL,
    due_at       INTEGER NOT NULL,
    told_at      INTEGER,
    tries        INTEGER NOT NULL DEFAULT 0,
    logged       INTEGER NOT NULL DEFAULT 0,
    quiet        INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE INDEX holdfast_tickets_due ON holdfast_tickets (rank, due_at, id) WHERE told_at IS NULL;
CREATE INDEX holdfast_tickets_told ON holdfast_tickets (fingerprint, told_at) WHERE told_at IS NOT NULL AND quiet = 0;
CREATE INDEX holdfast_tickets_of_job ON holdfast_tickets (job_id) WHERE job_id IS NOT NULL;

CREATE TABLE holdfast_alarms (
    name       TEXT PRIMARY KEY,
    raised_at  INTEGER NOT NULL
) WITHOUT ROWID;

-- The original arguments of jobs whose arguments were corrected.
CREATE TABLE holdfast_original_args (
    job_id  TEXT PRIMARY KEY,
    args    TEXT NOT NULL
) WITHOUT ROWID;

-- The key of the hashes that replace redacted values, of this database alone.
ALTER TABLE holdfast_meta ADD COLUMN redaction_key TEXT NOT NULL DEFAULT '';
UPDATE holdfast_meta SET redaction_key = lower(hex(randomblob(32)));

-- A trigger, because every statement that ends a job as failed leaves a letter, also in a worker of an earlier
-- version. An existing letter starts over: what was found about the last failure does not apply to this one. It stays
-- in its plan, which counts it.
CREATE TRIGGER holdfast_bury AFTER INSERT ON holdfast_finished WHEN NEW.status = 'failed'
BEGIN
    INSERT INTO holdfast_dead_letters (
        job_id, version, state, name, queue, owner, generation, stage, error_class, fingerprint, failure, attempt,
        holds, first_reason, first_failure_at, last_failure_at, updated_at, kept_since)
    SELECT NEW.id, 1, 'new', NEW.name, NEW.queue, NEW.owner, NEW.generation, NEW.stage,
           coalesce(NEW.failure ->> 'error_class', 'UNKNOWN'),
           coalesce(nullif(NEW.failure ->> 'fingerprint', ''), NEW.failure ->> 'error_class', 'UNKNOWN'),
           coalesce(NEW.failure, '{}'),
           -- A stage that fails sets its job's count back, and keeps its own.
           coalesce((SELECT max(attempt)
                       FROM holdfast_stages
                      WHERE job_id = NEW.id
                        AND status = 'failed'
                        AND CASE call WHEN '#1' THEN name ELSE name || '[' || call || ']' END = NEW.stage),
                    NEW.attempt),
           (SELECT count(*)
              FROM holdfast_job_events
             WHERE job_id = NEW.id AND kind = 'held' AND meta ->> 'held_by' IS NOT NULL),
           coalesce(NEW.failure ->> 'error_class', 'UNKNOWN'),
           coalesce((SELECT min(at)
                       FROM holdfast_job_events
                      WHERE job_id = NEW.id AND kind = 'retry' AND at >= NEW.queued_at),
                    NEW.finished_at),
           NEW.finished_at, NEW.finished_at, NEW.finished_at
     WHERE true
        ON CONFLICT (job_id) DO UPDATE
       SET version = holdfast_dead_letters.version + 1,
           state = 'new',
           generation = excluded.generation,
           stage = excluded.stage,
           error_class = excluded.error_class,
           fingerprint = excluded.fingerprint,
           failure = excluded.failure,
           attempt = excluded.attempt,
           holds = excluded.holds,
           last_failure_at = excluded.last_failure_at,
           updated_at = excluded.updated_at,
           kept_since = excluded.kept_since,
           deaths = holdfast_dead_letters.deaths + 1,
           repeated = holdfast_dead_letters.state = 'replaying'
                      AND holdfast_dead_letters.fingerprint = excluded.fingerprint,
           escalated = holdfast_dead_letters.escalated
                       OR (holdfast_dead_letters.state = 'replaying'
                           AND holdfast_dead_letters.error_class = excluded.error_class
                           AND coalesce(excluded.failure -> 'retryable' = 'false', 0)),
           cause = NULL,
           evidence = NULL,
           safe = NULL,
           notes = NULL;

    INSERT INTO holdfast_letter_steps (job_id, seq, at, state, actor, reason, meta)
    SELECT job_id,
           1 + coalesce((SELECT max(seq) FROM holdfast_letter_steps WHERE job_id = NEW.id), 0),
           NEW.finished_at, 'new', 'holdfast', coalesce(NEW.failure ->> 'message', ''),
           json_object('error_class', error_class, 'generation', generation)
      FROM holdfast_dead_letters
     WHERE job_id = NEW.id;

    -- One of that name is left from a letter that was deleted. If it was told, it told of an earlier failure.
    INSERT INTO holdfast_tickets (id, kind, rank, raised_at, job_id, fingerprint, facts, due_at)
    SELECT job_id || ':' || deaths, CASE WHEN escalated THEN 'escalated' ELSE 'dead letter' END,
           CASE WHEN escalated OR NEW.failure ->> '$.context.level' = 'page' THEN 0
                WHEN NEW.failure ->> '$.context.level' = 'review' THEN 2
                ELSE 1
           END,
           NEW.finished_at, job_id, fingerprint, '{}', NEW.finished_at
      FROM holdfast_dead_letters
     WHERE job_id = NEW.id
        ON CONFLICT (id) DO UPDATE
       SET kind = excluded.kind,
           rank = excluded.rank,
           raised_at = excluded.raised_at,
           fingerprint = excluded.fingerprint,
           facts = '{}',
           due_at = excluded.due_at,
           told_at = NULL,
           tries = 0,
           logged = 0,
           quiet = 0
     WHERE holdfast_tickets.told_at IS NOT NULL;
END;

-- A replayed job has ended in another way. Nearly every job is of the first generation, which was not replayed. One
-- that completes although its letter is open was retried by a process of the previous version, which does not know
-- letters: nothing is left to repair.
CREATE TRIGGER holdfast_verify AFTER INSERT ON holdfast_finished WHEN NEW.generation > 1 AND NEW.status <> 'failed'
BEGIN
    INSERT INTO holdfast_letter_steps (job_id, seq, at, state, actor, reason, meta)
    SELECT job_id,
           1 + coalesce((SELECT max(seq) FROM holdfast_letter_steps WHERE job_id = NEW.id), 0),
           NEW.finished_at,
           CASE WHEN state <> 'replaying' THEN 'closed' WHEN NEW.status = 'completed' THEN 'verified' ELSE 'discarded' END,
           'holdfast',
           CASE NEW.status WHEN 'completed' THEN 'its job completed' ELSE 'its job was cancelled' END,
           json_object('generation', NEW.generation)
      FROM holdfast_dead_letters
     WHERE job_id = NEW.id
       AND (state = 'replaying'
            OR (NEW.status = 'completed' AND state IN ('new', 'triaged', 'remediated', 'validated')));

    UPDATE holdfast_dead_letters
       SET version = version + 1,
           state = CASE WHEN state <> 'replaying' THEN 'closed'
                        WHEN NEW.status = 'completed' THEN 'verified'
                        ELSE 'discarded'
                   END,
           notes = CASE WHEN state = 'replaying' THEN notes ELSE 'its job completed' END,
           plan = CASE WHEN state = 'replaying' THEN plan END,
           updated_at = NEW.finished_at
     WHERE job_id = NEW.id
       AND (state = 'replaying'
            OR (NEW.status = 'completed' AND state IN ('new', 'triaged', 'remediated', 'validated')));
END;

-- A late result was accepted: nothing is left to repair.
CREATE TRIGGER holdfast_close_accepted AFTER UPDATE OF status ON holdfast_finished WHEN NEW.status = 'completed'
BEGIN
    INSERT INTO holdfast_letter_steps (job_id, seq, at, state, actor, reason, meta)
    SELECT job_id,
           1 + coalesce((SELECT max(seq) FROM holdfast_letter_steps WHERE job_id = NEW.id), 0),
           NEW.finished_at, 'closed', 'holdfast', 'its late result was accepted', '{}'
      FROM holdfast_dead_letters
     WHERE job_id = NEW.id AND state IN ('new', 'triaged', 'remediated', 'validated', 'discarded');

    UPDATE holdfast_dead_letters
       SET version = version + 1,
           state = 'closed',
           notes = 'its late result was accepted',
           plan = NULL,
           updated_at = NEW.finished_at
     WHERE job_id = NEW.id AND state IN ('new', 'triaged', 'remediated', 'validated', 'discarded');
END;

-- A late result changes the letter: a process that has archived it without the result must not delete it.
CREATE TRIGGER holdfast_note_late AFTER UPDATE OF late_result ON holdfast_finished
WHEN NEW.late_result IS NOT NULL AND NEW.status = 'failed'
BEGIN
    UPDATE holdfast_dead_letters SET version = version + 1 WHERE job_id = NEW.id;
END;
