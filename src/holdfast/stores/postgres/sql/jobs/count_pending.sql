-- Counts those of the other jobs whose end has not been delivered yet. Jobs for which this job waited before and
-- waits no longer do not count; when one of them ends, the job wakes unnecessarily and waits again.
UPDATE holdfast.jobs
   SET pending = (SELECT count(*) FROM holdfast.awaited WHERE parent_id = $1::uuid AND child_id = ANY ($2::uuid[]))
 WHERE id = $1::uuid
