-- Counts those of the others that have not been told of. Others that the job once waited for and gave up on
-- do not keep it waiting; when one of them ends, the job is woken for nothing, and waits again.
UPDATE holdfast_jobs
   SET pending = (SELECT count(*)
                    FROM holdfast_awaited
                   WHERE parent_id = :id
                     AND child_id IN (SELECT value FROM json_each(:children)))
 WHERE id = :id
