-- Returns what is known of messages that were received before. The caller holds the write lock, so that it stays true.
SELECT message.message_id, message.fingerprint, message.job_id
  FROM json_each(:ids) AS asked
 CROSS JOIN holdfast_inbox_messages AS message ON message.consumer = :consumer AND message.message_id = asked.value
