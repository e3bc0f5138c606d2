-- Of these letters, those that are as somebody has seen them, and in one of these states. [[job_id, version], ...]
SELECT DISTINCT letter.job_id
  FROM json_each(:seen) AS seen
 CROSS JOIN holdfast_dead_letters AS letter ON letter.job_id = seen.value ->> 0
 WHERE letter.version = seen.value ->> 1
   AND letter.state IN (SELECT value FROM json_each(:states))
 ORDER BY letter.job_id
