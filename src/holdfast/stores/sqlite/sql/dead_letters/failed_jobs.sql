-- Returns those of these jobs that have failed, in this generation, and belong to this owner.
SELECT job.id, job.queue
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_finished AS job ON job.id = requested.value
 WHERE job.status = 'failed'
   AND (:owner IS NULL OR job.owner = :owner)
   AND (:generation IS NULL OR job.generation = :generation)
