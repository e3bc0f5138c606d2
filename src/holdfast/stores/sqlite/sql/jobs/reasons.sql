-- The latest reason for which each job was requeued, by the index of the history. The other columns of each job are
-- those of the row with the highest number.
SELECT job_id, coalesce(meta ->> 'reason', meta ->> 'error_class') AS reason, max(seq)
  FROM holdfast_job_events
 WHERE job_id IN (SELECT value FROM json_each(:ids))
   AND kind IN ('queued', 'parked', 'held', 'retry')
 GROUP BY job_id
