-- Reads announcements of these jobs that are due, the oldest first. Of one job they are rendered in order: a later one
-- waits until the earlier ones are published.
SELECT sequence, job_id, name, kind, generation, attempt, again, failure, at, tries + 1 AS tries
  FROM holdfast_announcements AS due
 WHERE name IN (SELECT value FROM json_each(:names))
   AND due_at <= :now
   AND NOT EXISTS (SELECT 1 FROM holdfast_announcements AS earlier
                    WHERE earlier.job_id = due.job_id AND earlier.sequence < due.sequence)
 ORDER BY due_at, sequence
 LIMIT :limit
