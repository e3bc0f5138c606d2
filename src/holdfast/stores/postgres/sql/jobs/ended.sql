SELECT id::text FROM holdfast.finished WHERE id = ANY ($1::uuid[])
 UNION
SELECT id::text FROM holdfast.job_stubs WHERE id = ANY ($1::uuid[])
