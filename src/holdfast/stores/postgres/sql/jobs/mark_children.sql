-- Marks jobs whose ends are to be recorded for the jobs that wait for them. Their rows are locked.
UPDATE holdfast.jobs SET has_parents = true WHERE id = ANY ($1::uuid[]) AND NOT has_parents
