-- Sets the attempts that leased jobs have spent. [[id, token, attempt], ...], fenced before.
-- The count is absolute, so sending it again changes nothing.
UPDATE holdfast_jobs AS job
   SET attempt = want.value ->> 2, updated_at = :now
  FROM json_each(:batch) AS want
 WHERE job.id = want.value ->> 0
