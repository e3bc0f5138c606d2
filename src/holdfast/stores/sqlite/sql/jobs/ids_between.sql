-- Ids with a common prefix: a range of each primary key.
SELECT id FROM holdfast_jobs WHERE id BETWEEN :low AND :high
 UNION ALL
SELECT id FROM holdfast_finished WHERE id BETWEEN :low AND :high
 UNION ALL
SELECT id FROM holdfast_job_stubs WHERE id BETWEEN :low AND :high
 ORDER BY id
 LIMIT :limit
