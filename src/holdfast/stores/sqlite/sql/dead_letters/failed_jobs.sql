-- Of these jobs, those that have failed, in this generation, and are this owner's.
SELECT job.id, job.queue
  FROM json_each(:ids) AS wanted
 CROSS JOIN holdfast_finished AS job ON job.id = wanted.value
 WHERE job.status = 'failed'
   AND (:owner IS NULL OR job.owner = :owner)
   AND (:generation IS NULL OR job.generation = :generation)
