-- Counts that messages were received again.
UPDATE holdfast_inbox_messages
   SET repetitions = repetitions + 1
 WHERE consumer = :consumer
   AND message_id IN (SELECT value FROM json_each(:ids))
