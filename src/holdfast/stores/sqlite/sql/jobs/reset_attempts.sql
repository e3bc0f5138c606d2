-- A stage that ended, well or not, resets the attempt count to that of the present claim, so that no stage pays for
-- another. Losses stay: a job that stores another stage in each run and then crashes its worker is suspected
-- nevertheless.
UPDATE holdfast_jobs AS job
   SET attempt = CASE WHEN want.ended THEN 1 ELSE job.attempt END,
       stages = job.stages + want.written,
       updated_at = :now
  FROM (SELECT value ->> 0 AS id, max(value ->> 4 <> 'started') AS ended, count(*) AS written
          FROM json_each(:batch)
         GROUP BY 1) AS want
 WHERE job.id = want.id
