-- Returns those of these letters whose version is still the one that was read, and that are in one of these states;
-- for a new plan, none that is in a plan which has begun. [[job_id, version], ...]
SELECT DISTINCT letter.job_id
  FROM json_each(:seen) AS seen
 CROSS JOIN holdfast_dead_letters AS letter ON letter.job_id = seen.value ->> 0
 WHERE letter.version = seen.value ->> 1
   AND letter.state IN (SELECT value FROM json_each(:states))
   AND NOT (:planned
            AND letter.state = 'validated'
            AND EXISTS (SELECT 1 FROM holdfast_plans WHERE token = letter.plan AND running = 1))
 ORDER BY letter.job_id
