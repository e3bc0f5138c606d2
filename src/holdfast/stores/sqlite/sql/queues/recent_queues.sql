-- By the primary key, and no further than the limit: nothing has the queues of all jobs that ever ended.
SELECT DISTINCT queue FROM (SELECT queue FROM holdfast_finished ORDER BY id DESC LIMIT :limit)
