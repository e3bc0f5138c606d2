-- Deletes messages that were received long ago. Locks no row that a reception writes at this moment.
WITH old AS MATERIALIZED (
    SELECT consumer, message_id
      FROM holdfast.inbox_messages
     WHERE received_at <= (SELECT now FROM holdfast.clock) - $1::interval
     ORDER BY received_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
)
DELETE FROM holdfast.inbox_messages AS message
 USING old
 WHERE message.consumer = old.consumer
   AND message.message_id = old.message_id
RETURNING message.message_id
