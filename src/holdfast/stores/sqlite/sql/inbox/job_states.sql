-- Returns the states of jobs, live or ended, or of which only a stub is left.
SELECT stub.id, stub.status
  FROM json_each(:ids) AS asked
 CROSS JOIN holdfast_job_stubs AS stub ON stub.id = asked.value
 UNION ALL
SELECT job.id, job.status
  FROM json_each(:ids) AS asked
 CROSS JOIN holdfast_finished AS job ON job.id = asked.value
 UNION ALL
SELECT job.id, job.status
  FROM json_each(:ids) AS asked
 CROSS JOIN holdfast_jobs AS job ON job.id = asked.value
