-- Returns those of these jobs whose deadline has passed.
SELECT json_group_array(job.id)
  FROM json_each(:ids) AS wanted
 CROSS JOIN holdfast_jobs AS job ON job.id = wanted.value
 WHERE job.deadline_at <= :now
