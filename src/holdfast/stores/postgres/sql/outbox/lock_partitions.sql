-- Locks partitions: all of them, or those of these messages. Every writer that holds, releases or ends messages locks
-- them first, in the order of their numbers, so that two cannot deadlock, and a message that is being held behind another
-- cannot miss its release.
SELECT number
  FROM holdfast.outbox_partitions
 WHERE $1::uuid[] IS NULL
    OR number IN (SELECT partition_number FROM holdfast.outbox_messages WHERE id = ANY ($1))
 ORDER BY number
   FOR NO KEY UPDATE
