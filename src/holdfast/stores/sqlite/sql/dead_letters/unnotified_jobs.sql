-- Returns those of these jobs that have a ticket which was not notified yet.
SELECT DISTINCT job_id
  FROM holdfast_tickets
 WHERE job_id IN (SELECT value FROM json_each(:ids)) AND told_at IS NULL
