-- Tells how jobs ended, or that they live: in one statement, since one that ends between two would be in neither. The
-- stub of a job comes first: if the job was restored by a worker that knows no stubs, what is said last is true.
SELECT id::text, name, status, result, failure FROM holdfast.job_stubs WHERE id = ANY ($1::uuid[])
 UNION ALL
SELECT id::text, name, status, result, failure FROM holdfast.finished WHERE id = ANY ($1::uuid[])
 UNION ALL
SELECT id::text, name, status, NULL, NULL FROM holdfast.jobs WHERE id = ANY ($1::uuid[])
