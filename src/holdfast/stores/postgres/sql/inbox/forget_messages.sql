-- Deletes rows that this transaction has written: their messages failed, and may be received again.
DELETE FROM holdfast.inbox_messages WHERE consumer = $1 AND message_id = ANY ($2::text[])
