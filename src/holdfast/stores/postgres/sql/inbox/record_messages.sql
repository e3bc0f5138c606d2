-- Records messages that are new to the consumer, and returns their ids. A concurrent reception of the same message waits
-- here until the other one commits; sorted input keeps two batches from waiting for each other.
INSERT INTO holdfast.inbox_messages (consumer, message_id, fingerprint, job_id, received_at)
SELECT $1, message_id, fingerprint, job_id, holdfast.holdfast_now()
  FROM unnest($2::text[], $3::text[], $4::uuid[]) AS item (message_id, fingerprint, job_id)
 ORDER BY message_id
    ON CONFLICT (consumer, message_id) DO NOTHING
RETURNING message_id
