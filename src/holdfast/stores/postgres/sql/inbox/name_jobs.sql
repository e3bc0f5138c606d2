-- Names the jobs of messages: made since, or earlier ones with the same key. The rows are this transaction's own.
UPDATE holdfast.inbox_messages AS message
   SET job_id = named.job_id
  FROM unnest($2::text[], $3::uuid[]) AS named (message_id, job_id)
 WHERE message.consumer = $1
   AND message.message_id = named.message_id
