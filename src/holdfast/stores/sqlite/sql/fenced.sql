-- Keeps, of a worker's changes, those whose lease token still matches: [[id, token, ...], ...].
SELECT json_group_array(json(want.value)), json_group_array(job.id)
  FROM json_each(:batch) AS want
 CROSS JOIN holdfast_jobs AS job ON job.id = want.value ->> 0
 WHERE job.lease_token = want.value ->> 1
