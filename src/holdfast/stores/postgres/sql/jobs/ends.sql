-- Returns how jobs ended, or that they are live. One statement, since a job that ends between two would be in neither
-- result. Stubs come first: if a worker that does not know stubs has restored the job, the later row is the right
-- one.
SELECT id::text, name, status, result, failure FROM holdfast.job_stubs WHERE id = ANY ($1::uuid[])
 UNION ALL
SELECT id::text, name, status, result, failure FROM holdfast.finished WHERE id = ANY ($1::uuid[])
 UNION ALL
SELECT id::text, name, status, NULL, NULL FROM holdfast.jobs WHERE id = ANY ($1::uuid[])
