-- Of these jobs, those of which nobody was told yet.
SELECT DISTINCT job_id
  FROM holdfast_tickets
 WHERE job_id IN (SELECT value FROM json_each(:ids)) AND told_at IS NULL
