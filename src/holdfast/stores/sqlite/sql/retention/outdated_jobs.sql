-- Scans jobs that have ended, and returns those that ended long ago and are no longer needed, with the id at which
-- the scan stopped, unless that is its end. Failed jobs are not purged here: they are deleted with their letter,
-- after that was archived; one that failed before there were letters stays. There is no index for this, since every
-- job would pay for it when it ends: ids grow with time, so the old ones are at the start of the primary key.
SELECT CASE WHEN count(*) = :walk THEN max(walked.id) END AS reached,
       json_group_array(walked.id) FILTER (
           WHERE walked.finished_at <= :until
             AND walked.status <> 'failed'
             AND NOT EXISTS (SELECT 1 FROM holdfast_dead_letters WHERE job_id = walked.id)
             AND NOT EXISTS (SELECT 1 FROM holdfast_awaited WHERE child_id = walked.id)
             AND NOT EXISTS (SELECT 1 FROM holdfast_awaited_ends WHERE child_id = walked.id)
             AND NOT EXISTS (SELECT 1 FROM holdfast_announcements WHERE job_id = walked.id)) AS ids
  FROM (SELECT id, status, finished_at
          FROM holdfast_finished
         WHERE id > :after AND id < :before
         ORDER BY id
         LIMIT :walk) AS walked
