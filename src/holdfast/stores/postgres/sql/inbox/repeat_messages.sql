-- Counts that messages were received again, and returns what is known of them. Rows are locked in the order of the ids,
-- so that two batches cannot deadlock.
WITH known AS MATERIALIZED (
    SELECT consumer, message_id
      FROM holdfast.inbox_messages
     WHERE consumer = $1
       AND message_id = ANY ($2::text[])
     ORDER BY message_id
       FOR UPDATE
)
UPDATE holdfast.inbox_messages AS message
   SET repetitions = repetitions + 1
  FROM known
 WHERE message.consumer = known.consumer
   AND message.message_id = known.message_id
RETURNING message.message_id, message.fingerprint, message.job_id::text
