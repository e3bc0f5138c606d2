-- Counts those of the others that have not been told of. Others that the job once waited for and gave up on
-- do not keep it waiting; when one of them ends, the job is woken for nothing, and waits again.
UPDATE holdfast.jobs
   SET pending = (SELECT count(*) FROM holdfast.awaited WHERE parent_id = $1::uuid AND child_id = ANY ($2::uuid[]))
 WHERE id = $1::uuid
