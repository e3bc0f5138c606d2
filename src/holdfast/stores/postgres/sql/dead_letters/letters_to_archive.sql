-- Letters that have been kept long enough, or are beyond the newest so many; all count, and the oldest go. One that is
-- being replayed, or waits for its turn in a plan that has begun, stays until that is over; so does one whose job
-- somebody waits for.
SELECT letter.job_id::text, letter.version
  FROM holdfast.dead_letters AS letter
 WHERE (letter.kept_since <= (SELECT now FROM holdfast.clock) - $1::interval
        OR ($2::bigint IS NOT NULL
            AND (letter.kept_since, letter.job_id) <= (SELECT kept_since, job_id
                                                         FROM holdfast.dead_letters
                                                        ORDER BY kept_since DESC, job_id DESC
                                                       OFFSET $2
                                                        LIMIT 1)))
   AND letter.state <> 'replaying'
   AND NOT EXISTS (SELECT FROM holdfast.plans WHERE token = letter.plan AND running)
   AND NOT EXISTS (SELECT FROM holdfast.awaited WHERE child_id = letter.job_id)
   AND NOT EXISTS (SELECT FROM holdfast.awaited_ends WHERE child_id = letter.job_id)
 ORDER BY letter.kept_since, letter.job_id
 LIMIT $3
