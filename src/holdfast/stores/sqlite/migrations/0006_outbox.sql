-- The outbox: messages to other systems, written in the transaction that causes them, and published by relays.
--
-- The first ten columns, their defaults, and the names of the first two indexes (after the prefix) are a contract: other
-- programs insert messages with plain SQL. Every further column has a default.
-- sequence: the order of publication; created_at is equal within a transaction.
-- partition_number: which relay publishes it; all messages of an aggregate are in one partition.
-- message_id: what identifies it for its consumers; without one, its id.
-- exchange, routing_key: instead of the route of its type.
-- key: of two messages with one key, only the first is stored. job_id: the job that has published it.
-- due_at: not published before; null unless it is retried.
-- held_by: not published until released. It names a blocked route, or an earlier message of the aggregate, as
-- 'message:<id>', that is retried, held or has failed: one that has failed holds back the later ones of its aggregate
-- until an operator retries or skips it. note: what an operator did with it.
CREATE TABLE holdfast_outbox_messages (
    id                TEXT NOT NULL UNIQUE DEFAULT (
                          lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2)
                          || '-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    aggregate_id      TEXT NOT NULL CHECK (length(aggregate_id) <= 64),
    aggregate_type    TEXT NOT NULL CHECK (length(aggregate_type) <= 64),
    message_type      TEXT NOT NULL CHECK (length(message_type) <= 64),
    payload           TEXT NOT NULL CHECK (json_valid(payload)),
    status            TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'published', 'failed', 'skipped')),
    created_at        INTEGER DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)),
    processed_at      INTEGER,
    retry_count       INTEGER DEFAULT 0,
    error_message     TEXT,
    sequence          INTEGER PRIMARY KEY AUTOINCREMENT,
    partition_number  INTEGER GENERATED ALWAYS AS (
                          (coalesce(unicode(substr(aggregate_id, -1)), 0) + 3 * coalesce(unicode(substr(aggregate_id, -2)), 0)
                           + length(aggregate_type)) % 4) STORED,
    message_id        TEXT,
    headers           TEXT NOT NULL DEFAULT '{}',
    exchange          TEXT,
    routing_key       TEXT,
    key               TEXT,
    job_id            TEXT,
    trace             TEXT,
    due_at            INTEGER,
    held_by           TEXT,
    note              TEXT
);

CREATE INDEX holdfast_idx_outbox_status ON holdfast_outbox_messages (status, created_at);
CREATE INDEX holdfast_idx_outbox_aggregate ON holdfast_outbox_messages (aggregate_id, aggregate_type);
-- What a relay reads: neither published messages nor those that are held. Those that are retried are apart, so that it
-- does not walk over them until they are due.
CREATE INDEX holdfast_outbox_pending ON holdfast_outbox_messages (partition_number, sequence)
    WHERE status = 'pending' AND held_by IS NULL AND due_at IS NULL;
CREATE INDEX holdfast_outbox_retried ON holdfast_outbox_messages (partition_number, due_at)
    WHERE status = 'pending' AND held_by IS NULL AND due_at IS NOT NULL;
-- What is ahead of a message in its aggregate.
CREATE INDEX holdfast_outbox_unpublished ON holdfast_outbox_messages (aggregate_id, aggregate_type, sequence)
    WHERE status IN ('pending', 'failed');
-- Only pending messages are held.
CREATE INDEX holdfast_outbox_held ON holdfast_outbox_messages (held_by, sequence) WHERE held_by IS NOT NULL;
CREATE UNIQUE INDEX holdfast_outbox_by_key ON holdfast_outbox_messages (key) WHERE key IS NOT NULL;

-- Relays share the work by partitions. A relay writes only under the tokens of the partitions that it has leased.
CREATE TABLE holdfast_outbox_partitions (
    number            INTEGER PRIMARY KEY,
    leased_by         TEXT,
    lease_token       INTEGER NOT NULL DEFAULT 0,
    lease_expires_at  INTEGER
);
INSERT INTO holdfast_outbox_partitions (number) VALUES (0), (1), (2), (3);

CREATE TABLE holdfast_outbox_relays (
    name     TEXT PRIMARY KEY,
    seen_at  INTEGER NOT NULL
) WITHOUT ROWID;

-- Routes that the broker refuses: their messages are held, and one of them is tried at `probe_at`.
CREATE TABLE holdfast_outbox_routes (
    route       TEXT PRIMARY KEY,
    blocked_at  INTEGER NOT NULL,
    probe_at    INTEGER NOT NULL,
    error       TEXT NOT NULL
) WITHOUT ROWID;
