-- Tells how jobs ended, or that they live: in one statement, since one that ends between two would be in neither.
SELECT id::text, name, status, result, failure FROM holdfast.finished WHERE id = ANY ($1::uuid[])
 UNION ALL
SELECT id::text, name, status, NULL, NULL FROM holdfast.jobs WHERE id = ANY ($1::uuid[])
