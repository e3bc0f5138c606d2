-- In the order of the ids, in which they are read: a sort would be a second pass.
SELECT job.id, job.name, dispatch.number
  FROM json_each(:ids) AS due
 CROSS JOIN holdfast_jobs AS job ON job.id = due.value
 CROSS JOIN holdfast_dispatches AS dispatch ON dispatch.job_id = job.id
