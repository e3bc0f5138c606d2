-- Reads by the primary key up to the limit: no index has the queues of all jobs that ever ended.
SELECT DISTINCT queue FROM (SELECT queue FROM holdfast_finished ORDER BY id DESC LIMIT :limit)
