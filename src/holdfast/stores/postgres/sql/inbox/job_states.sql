-- Returns the states of jobs. One statement, since a job that ends between two would be in neither result.
SELECT id::text, status FROM holdfast.job_stubs WHERE id = ANY ($1::uuid[])
 UNION ALL
SELECT id::text, status FROM holdfast.finished WHERE id = ANY ($1::uuid[])
 UNION ALL
SELECT id::text, status FROM holdfast.jobs WHERE id = ANY ($1::uuid[])
