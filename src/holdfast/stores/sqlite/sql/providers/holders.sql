-- Lists the holders of jobs by skipping through the index: the cost grows with the number of holders, not of jobs.
WITH RECURSIVE holders (held_by) AS (
    SELECT ''
     UNION ALL
    SELECT (SELECT min(job.held_by)
              FROM holdfast_jobs AS job INDEXED BY holdfast_jobs_held
             WHERE job.held_by > holders.held_by)
      FROM holders
     WHERE holders.held_by IS NOT NULL
)
SELECT json_group_array(held_by) FROM holders WHERE held_by > ''
