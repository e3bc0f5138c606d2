-- Sets the attempts that leased jobs have spent. [[id, token, attempt], ...].
-- The count is absolute, so sending it again changes nothing.
-- The batch is laid out first: statistics of a once small table would else have the table scanned, and
-- the batch read again for each of its rows.
WITH want AS MATERIALIZED (
    SELECT value ->> 0 AS id, value ->> 2 AS attempt
      FROM json_each(:batch)
)
UPDATE holdfast_jobs AS job
   SET attempt = want.attempt, updated_at = :now
  FROM want
 WHERE job.id = want.id
