SELECT job_id, number, name, data
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_signals ON job_id = requested.value
 ORDER BY number
