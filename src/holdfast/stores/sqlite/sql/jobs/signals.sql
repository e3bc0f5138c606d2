SELECT job_id, number, name, data
  FROM json_each(:ids) AS wanted
 CROSS JOIN holdfast_signals ON job_id = wanted.value
 ORDER BY number
