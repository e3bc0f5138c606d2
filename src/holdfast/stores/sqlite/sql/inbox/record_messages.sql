-- Records messages that are new to the consumer. The caller holds the write lock.
-- [[message_id, fingerprint, job_id], ...]
INSERT INTO holdfast_inbox_messages (consumer, message_id, fingerprint, job_id, received_at)
SELECT :consumer, value ->> 0, value ->> 1, value ->> 2, :now
  FROM json_each(:batch)
