-- Deletes rows that this transaction has written: their messages failed, and may be received again.
DELETE FROM holdfast_inbox_messages
 WHERE consumer = :consumer
   AND message_id IN (SELECT value FROM json_each(:ids))
