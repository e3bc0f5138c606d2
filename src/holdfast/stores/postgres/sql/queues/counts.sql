SELECT queue, status, count(*) FROM holdfast.jobs GROUP BY queue, status
 UNION ALL
SELECT queue, status, count(*) FROM holdfast.finished GROUP BY queue, status
