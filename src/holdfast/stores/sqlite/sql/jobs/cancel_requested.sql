SELECT json_group_array(job.id)
  FROM json_each(:ids) AS held
 CROSS JOIN holdfast_jobs AS job ON job.id = held.value
 WHERE job.cancel_requested = 1
