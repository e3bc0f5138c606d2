-- Makes held jobs ready, the longest held first. Their holder stays recorded for the worker that claims them.
UPDATE holdfast_jobs
   SET let_out_by = held_by, held_by = NULL, retry_after = NULL, updated_at = :now
 WHERE id IN (SELECT id
                FROM holdfast_jobs INDEXED BY holdfast_jobs_held
               WHERE held_by = :holder
               ORDER BY retry_after, id
               LIMIT :limit)
RETURNING queue
