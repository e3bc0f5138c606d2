-- Forgets the dispatches that have arrived, whether their jobs can be taken or not: one that cannot is dispatched again
-- when it can. Only one for workers that know its name is kept if this one does not: it would be dispatched to the same
-- workers again at once.
DELETE FROM holdfast_dispatches
 WHERE job_id IN (SELECT value FROM json_each(:ids))
   AND NOT EXISTS (SELECT 1
                     FROM holdfast_jobs AS job
                    WHERE job.id = job_id
                      AND job.status = 'queued'
                      AND job.retry_after IS NULL
                      AND job.let_out_by LIKE char(10) || '%'
                      AND :knows IS NOT NULL
                      AND job.name NOT IN (SELECT value FROM json_each(:knows)))
