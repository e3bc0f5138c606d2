-- Finished stages stay, unless all are to run again; those that failed or were under way do.
DELETE FROM holdfast_stages
 WHERE job_id IN (SELECT value FROM json_each(:ids))
   AND (:restart OR (status <> 'done' AND name <> '@restarted'))
