-- Returns those of the jobs found by outdated_jobs.sql that are still outdated.
SELECT json_group_array(job.id)
  FROM json_each(:ids) AS found
 CROSS JOIN holdfast_finished AS job ON job.id = found.value
 WHERE job.finished_at <= :until
   AND job.status <> 'failed'
   AND NOT EXISTS (SELECT 1 FROM holdfast_dead_letters WHERE job_id = job.id)
   AND NOT EXISTS (SELECT 1 FROM holdfast_awaited WHERE child_id = job.id)
   AND NOT EXISTS (SELECT 1 FROM holdfast_awaited_ends WHERE child_id = job.id)
