-- Deletes stages that failed or were under way. Finished stages stay, unless all are to run again.
DELETE FROM holdfast_stages
 WHERE job_id IN (SELECT value FROM json_each(:ids))
   AND (:restart OR (status <> 'done' AND name <> '@restarted'))
