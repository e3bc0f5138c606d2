-- Tells how jobs ended, or that they live: in one statement, since one that ends between two would be in neither. The
-- stub of a job comes first: if the job was restored by a worker that knows no stubs, what is said last is true.
SELECT stub.id, stub.name, stub.status, stub.result, stub.failure
  FROM json_each(:ids) AS wanted
 CROSS JOIN holdfast_job_stubs AS stub ON stub.id = wanted.value
 UNION ALL
SELECT job.id, job.name, job.status, job.result, job.failure
  FROM json_each(:ids) AS wanted
 CROSS JOIN holdfast_finished AS job ON job.id = wanted.value
 UNION ALL
SELECT job.id, job.name, job.status, NULL, NULL
  FROM json_each(:ids) AS wanted
 CROSS JOIN holdfast_jobs AS job ON job.id = wanted.value
