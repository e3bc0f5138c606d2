-- Releases the messages that are held by these: routes that are not blocked any more, or messages that are published or
-- skipped. Runs with their partitions locked.
UPDATE holdfast.outbox_messages
   SET held_by = NULL
 WHERE held_by = ANY ($1::text[])
RETURNING id::text
