-- Lists the holders of jobs by skipping through the index: the cost grows with the number of holders, not of jobs.
WITH RECURSIVE holders AS (
    SELECT '' AS held_by
     UNION ALL
    SELECT (SELECT job.held_by
              FROM holdfast.jobs AS job
             WHERE job.held_by > holders.held_by
             ORDER BY job.held_by
             LIMIT 1)
      FROM holders
     WHERE holders.held_by IS NOT NULL
)
SELECT held_by FROM holders WHERE held_by > ''
