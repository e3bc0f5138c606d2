-- Makes parked jobs ready when they are due, in batches, so that the claim reads ready rows only.
UPDATE holdfast_jobs
   SET retry_after = NULL, updated_at = :now
 WHERE id IN (SELECT id
                FROM holdfast_jobs INDEXED BY holdfast_jobs_parked
               WHERE status = 'queued' AND retry_after IS NOT NULL AND retry_after <= :now
               ORDER BY retry_after
               LIMIT :limit)
