-- Releases the messages that are held by these: routes that are not blocked any more, or messages that are published or
-- skipped.
UPDATE holdfast_outbox_messages
   SET held_by = NULL
 WHERE sequence IN (SELECT message.sequence
                      FROM json_each(:holders) AS holder
                     CROSS JOIN holdfast_outbox_messages AS message INDEXED BY holdfast_outbox_held
                     WHERE message.held_by = holder.value
                       AND message.status = 'pending' AND message.held_by IS NOT NULL)
