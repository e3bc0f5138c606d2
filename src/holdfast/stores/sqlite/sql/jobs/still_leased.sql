-- Returns those of a worker's changes whose lease token still matches, by their position in the batch.
SELECT json_group_array(want.key)
  FROM json_each(:batch) AS want
 CROSS JOIN holdfast_jobs AS job ON job.id = want.value ->> 0
 WHERE job.lease_token = want.value ->> 1
   AND job.leased_by IS NOT NULL
