-- Records that a job waits for other jobs that have not ended.
INSERT INTO holdfast_awaited (child_id, parent_id)
SELECT job.id, :id
  FROM json_each(:children) AS child
 CROSS JOIN holdfast_jobs AS job ON job.id = child.value
 WHERE true
    ON CONFLICT DO NOTHING
