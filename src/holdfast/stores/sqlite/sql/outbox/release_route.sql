-- Releases the oldest messages that an unblocked route has held; none, if it is blocked again.
UPDATE holdfast_outbox_messages
   SET held_by = NULL
 WHERE sequence IN (SELECT message.sequence
                      FROM holdfast_outbox_messages AS message INDEXED BY holdfast_outbox_held
                     WHERE message.held_by = :route
                       AND message.status = 'pending' AND message.held_by IS NOT NULL
                     ORDER BY message.sequence
                     LIMIT :limit)
   AND EXISTS (SELECT 1 FROM holdfast_outbox_routes WHERE route = :route AND unblocked)
