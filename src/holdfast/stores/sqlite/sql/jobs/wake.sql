-- Delivers ends to the jobs that wait for them, and makes those ready that have nothing left to wait for.
UPDATE holdfast_jobs AS job
   SET pending = max(job.pending - parent.ends, 0),
       retry_after = CASE WHEN NOT job.waiting OR job.pending > parent.ends THEN job.retry_after END,
       waiting = job.waiting AND job.pending > parent.ends,
       updated_at = :now
  FROM (SELECT parent_id, count(*) AS ends
          FROM holdfast_awaited
         WHERE child_id IN (SELECT value FROM json_each(:ids))
         GROUP BY parent_id) AS parent
 WHERE job.id = parent.parent_id
   AND job.pending > 0
