-- Returns those of these jobs whose deadline has passed.
SELECT json_group_array(job.id)
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_jobs AS job ON job.id = requested.value
 WHERE job.deadline_at <= :now
