UPDATE holdfast_jobs
   SET signals = signals + 1,
       retry_after = CASE WHEN NOT waiting THEN retry_after END,
       waiting = 0,
       updated_at = :now
 WHERE id = :id
