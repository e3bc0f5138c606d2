-- Letters whose retention has ended, or that exceed the maximum number of letters, the oldest first. Not those that
-- are being replayed, or soon will be, nor those whose job has a parent waiting for it, or an announcement to be rendered. Letters of messages are counted
-- apart, so that a flood of messages evicts no letter of a job.
SELECT letter.job_id, letter.version
  FROM holdfast_dead_letters AS letter INDEXED BY holdfast_dead_letters_kept
 WHERE letter.kept_since >= 0
   AND (letter.kept_since <= :until
        OR (:beyond IS NOT NULL
            AND letter.name NOT IN ('holdfast.publish', 'holdfast.consume')
            AND (letter.kept_since, letter.job_id) <= (SELECT kept_since, job_id
                                                         FROM holdfast_dead_letters
                                                        WHERE name NOT IN ('holdfast.publish', 'holdfast.consume')
                                                        ORDER BY kept_since DESC, job_id DESC
                                                        LIMIT 1 OFFSET coalesce(:beyond, 0)))
        OR (:beyond IS NOT NULL
            AND letter.name IN ('holdfast.publish', 'holdfast.consume')
            AND (letter.kept_since, letter.job_id) <= (SELECT kept_since, job_id
                                                         FROM holdfast_dead_letters
                                                        WHERE name IN ('holdfast.publish', 'holdfast.consume')
                                                        ORDER BY kept_since DESC, job_id DESC
                                                        LIMIT 1 OFFSET coalesce(:beyond, 0))))
   AND letter.state <> 'replaying'
   AND NOT EXISTS (SELECT 1 FROM holdfast_plans WHERE token = letter.plan AND running = 1)
   AND NOT EXISTS (SELECT 1 FROM holdfast_awaited WHERE child_id = letter.job_id)
   AND NOT EXISTS (SELECT 1 FROM holdfast_awaited_ends WHERE child_id = letter.job_id)
   AND NOT EXISTS (SELECT 1 FROM holdfast_announcements WHERE job_id = letter.job_id)
 ORDER BY letter.kept_since, letter.job_id
 LIMIT :limit
