SELECT queue, status, count(*) FROM holdfast_jobs GROUP BY queue, status
 UNION ALL
SELECT queue, status, count(*) FROM holdfast_finished GROUP BY queue, status
