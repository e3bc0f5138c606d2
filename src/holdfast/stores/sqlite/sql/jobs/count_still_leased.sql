-- Counts those of a worker's changes whose lease token still matches: [[id, token, ...], ...]. A queued job has a
-- token, too, but no holder.
SELECT count(*)
  FROM json_each(:batch) AS want
 CROSS JOIN holdfast_jobs AS job ON job.id = want.value ->> 0
 WHERE job.lease_token = want.value ->> 1
   AND job.leased_by IS NOT NULL
