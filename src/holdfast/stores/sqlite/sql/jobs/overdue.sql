-- Jobs whose deadline has passed, the longest overdue first.
SELECT json_group_array(id)
  FROM (SELECT id
          FROM holdfast_jobs INDEXED BY holdfast_jobs_deadline
         WHERE deadline_at IS NOT NULL AND deadline_at <= :now
         ORDER BY deadline_at
         LIMIT :limit)
