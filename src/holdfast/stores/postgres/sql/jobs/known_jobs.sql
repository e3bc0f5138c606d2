-- Returns which of these submissions were stored, after the connection was lost before the answer.
SELECT id::text FROM holdfast.jobs WHERE id = ANY ($1::uuid[])
 UNION ALL
SELECT id::text FROM holdfast.finished WHERE id = ANY ($1::uuid[])
 UNION ALL
SELECT id::text FROM holdfast.job_stubs WHERE id = ANY ($1::uuid[])
