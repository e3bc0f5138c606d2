-- Names those who hold jobs, from each to the next by the index: the cost is theirs, and not that of their jobs.
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
