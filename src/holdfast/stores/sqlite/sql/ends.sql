-- Tells how jobs ended, or that they live: in one statement, since one that ends between two would be in neither.
SELECT job.id, job.name, job.status, job.result, job.failure
  FROM json_each(:ids) AS wanted
 CROSS JOIN holdfast_finished AS job ON job.id = wanted.value
 UNION ALL
SELECT job.id, job.name, job.status, NULL, NULL
  FROM json_each(:ids) AS wanted
 CROSS JOIN holdfast_jobs AS job ON job.id = wanted.value
