-- Returns how jobs ended, or that they are live. One statement, since a job that ends between two would be in neither
-- result. Stubs come first: if a worker that does not know stubs has restored the job, the later row is the right
-- one.
SELECT stub.id, stub.name, stub.status, stub.result, stub.failure
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_job_stubs AS stub ON stub.id = requested.value
 UNION ALL
SELECT job.id, job.name, job.status, job.result, job.failure
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_finished AS job ON job.id = requested.value
 UNION ALL
SELECT job.id, job.name, job.status, NULL, NULL
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_jobs AS job ON job.id = requested.value
