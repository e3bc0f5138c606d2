-- Counts one more announcement of an ended job, unless one of that end is still to be published; announce_again.sql adds
-- it in the same transaction.
UPDATE holdfast_finished
   SET announced_again = announced_again + 1
 WHERE id IN (SELECT job_id FROM holdfast_announced_ends WHERE job_id = :id)
   AND NOT EXISTS (SELECT 1
                     FROM holdfast_announced_ends AS ended
                     JOIN holdfast_announcements AS pending USING (job_id, generation, kind)
                    WHERE ended.job_id = :id)
