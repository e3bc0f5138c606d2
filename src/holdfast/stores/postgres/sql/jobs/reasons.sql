-- The latest reason for which each job was requeued, by the index of the history.
SELECT DISTINCT ON (job_id) job_id::text, coalesce(meta::json ->> 'reason', meta::json ->> 'error_class') AS reason
  FROM holdfast.job_events
 WHERE job_id = ANY ($1::uuid[])
   AND kind IN ('queued', 'parked', 'held', 'retry')
 ORDER BY job_id, seq DESC
