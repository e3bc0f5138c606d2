-- The inbox: which messages were received. The row and the job that the message asks for are written in one
-- transaction, and only then is the message acknowledged. The job's key, which is the message's id, outlives the row.
CREATE TABLE holdfast_inbox_messages (
    consumer      TEXT NOT NULL,
    message_id    TEXT NOT NULL,
    fingerprint   TEXT NOT NULL,
    job_id        TEXT,
    received_at   INTEGER NOT NULL,
    repetitions   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID;
CREATE INDEX holdfast_inbox_by_age ON holdfast_inbox_messages (received_at);
