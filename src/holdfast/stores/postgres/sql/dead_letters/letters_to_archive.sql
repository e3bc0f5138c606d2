-- Letters whose retention has ended, or that exceed the maximum number of letters; all letters count, and the oldest
-- are archived. Letters of messages are counted apart, so that a flood of messages evicts no letter of a job. A letter
-- that is being replayed, or is in a plan that has begun, stays until the replay is over; so does one whose job has a
-- parent waiting for it, or an announcement to be rendered.
SELECT letter.job_id::text, letter.version
  FROM holdfast.dead_letters AS letter
 WHERE (letter.kept_since <= (SELECT now FROM holdfast.clock) - $1::interval
        OR ($2::bigint IS NOT NULL
            AND letter.name NOT IN ('holdfast.publish', 'holdfast.consume')
            AND (letter.kept_since, letter.job_id) <= (SELECT kept_since, job_id
                                                         FROM holdfast.dead_letters
                                                        WHERE name NOT IN ('holdfast.publish', 'holdfast.consume')
                                                        ORDER BY kept_since DESC, job_id DESC
                                                       OFFSET $2
                                                        LIMIT 1))
        OR ($2::bigint IS NOT NULL
            AND letter.name IN ('holdfast.publish', 'holdfast.consume')
            AND (letter.kept_since, letter.job_id) <= (SELECT kept_since, job_id
                                                         FROM holdfast.dead_letters
                                                        WHERE name IN ('holdfast.publish', 'holdfast.consume')
                                                        ORDER BY kept_since DESC, job_id DESC
                                                       OFFSET $2
                                                        LIMIT 1)))
   AND letter.state <> 'replaying'
   AND NOT EXISTS (SELECT FROM holdfast.plans WHERE token = letter.plan AND running)
   AND NOT EXISTS (SELECT FROM holdfast.awaited WHERE child_id = letter.job_id)
   AND NOT EXISTS (SELECT FROM holdfast.awaited_ends WHERE child_id = letter.job_id)
   AND NOT EXISTS (SELECT FROM holdfast.announcements WHERE job_id = letter.job_id)
 ORDER BY letter.kept_since, letter.job_id
 LIMIT $3
