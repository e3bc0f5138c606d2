-- Ids with a common prefix: a range of each primary key.
SELECT id::text FROM (
    (SELECT id FROM holdfast.jobs WHERE id BETWEEN $1::uuid AND $2::uuid ORDER BY id LIMIT $3)
     UNION ALL
    (SELECT id FROM holdfast.finished WHERE id BETWEEN $1::uuid AND $2::uuid ORDER BY id LIMIT $3)
     UNION ALL
    (SELECT id FROM holdfast.job_stubs WHERE id BETWEEN $1::uuid AND $2::uuid ORDER BY id LIMIT $3)
) AS found
 ORDER BY id
 LIMIT $3
