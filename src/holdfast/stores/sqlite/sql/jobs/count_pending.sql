-- Counts those of the other jobs whose end has not been delivered yet. Jobs for which this job waited before and
-- waits no longer do not count; when one of them ends, the job wakes unnecessarily and waits again.
UPDATE holdfast_jobs
   SET pending = (SELECT count(*)
                    FROM holdfast_awaited
                   WHERE parent_id = :id
                     AND child_id IN (SELECT value FROM json_each(:children)))
 WHERE id = :id
