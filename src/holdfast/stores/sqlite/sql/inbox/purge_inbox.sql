-- Deletes messages that were received long ago.
DELETE FROM holdfast_inbox_messages
 WHERE (consumer, message_id) IN (SELECT consumer, message_id
                                    FROM holdfast_inbox_messages
                                   WHERE received_at <= :until
                                   ORDER BY received_at
                                   LIMIT :limit)
