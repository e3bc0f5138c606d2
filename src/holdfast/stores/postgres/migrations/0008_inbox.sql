-- The inbox: which messages were received. The row and the job that the message asks for are written in one
-- transaction, and only then is the message acknowledged. The job's key, which is the message's id, outlives the row.
CREATE TABLE holdfast.inbox_messages (
    consumer      text NOT NULL,
    message_id    text NOT NULL,
    fingerprint   text NOT NULL,
    job_id        uuid,
    received_at   timestamptz NOT NULL,
    repetitions   integer NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, message_id)
);
CREATE INDEX inbox_by_age ON holdfast.inbox_messages (received_at);
