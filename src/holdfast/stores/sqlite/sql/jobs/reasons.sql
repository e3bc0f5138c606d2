-- Why jobs went back to their queue, in the words of the last time; by the history's index. Of each job, the
-- other columns are those of the row with the highest number.
SELECT job_id, coalesce(meta ->> 'reason', meta ->> 'error_class') AS reason, max(seq)
  FROM holdfast_job_events
 WHERE job_id IN (SELECT value FROM json_each(:ids))
   AND kind IN ('queued', 'parked', 'held', 'retry')
 GROUP BY job_id
