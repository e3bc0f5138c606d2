-- Deletes tickets that were notified long ago and have no letter any more; the others are deleted with their letters.
DELETE FROM holdfast_tickets
 WHERE id IN (SELECT id
                FROM holdfast_tickets AS old
               WHERE told_at <= :until
                 AND NOT EXISTS (SELECT 1 FROM holdfast_dead_letters AS letter WHERE letter.job_id = old.job_id)
               LIMIT :limit)
