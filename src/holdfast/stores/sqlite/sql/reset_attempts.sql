-- A stored result sets the attempt count back to the present claim: no stage pays for another.
UPDATE holdfast_jobs AS job
   SET attempt = CASE WHEN want.done THEN 1 ELSE job.attempt END,
       losses = CASE WHEN want.done THEN 0 ELSE job.losses END,
       stages = job.stages + want.written,
       updated_at = :now
  FROM (SELECT value ->> 0 AS id, max(value ->> 4 = 'done') AS done, count(*) AS written
          FROM json_each(:batch)
         GROUP BY 1) AS want
 WHERE job.id = want.id
