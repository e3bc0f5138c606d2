-- Announces the end of a job once more; count_again.sql has counted it.
INSERT INTO holdfast_announcements (job_id, name, kind, generation, attempt, again, failure, at, due_at)
SELECT job_id, name, kind, generation, attempt, again, failure, at, :now
  FROM holdfast_announced_ends
 WHERE job_id = :id
    ON CONFLICT DO NOTHING
