-- Announces the end of a job once more, unless an announcement of that end is still to be published. Returns the job if its
-- end is announced. A concurrent call waits for the row of the job, and adds a repetition of its own.
WITH ended AS MATERIALIZED (
    SELECT * FROM holdfast.announced_ends WHERE job_id = $1::uuid
), pending AS MATERIALIZED (
    SELECT sequence FROM holdfast.announcements JOIN ended USING (job_id, generation, kind)
), counted AS (
    UPDATE holdfast.finished AS job
       SET announced_again = job.announced_again + 1
      FROM ended
     WHERE job.id = ended.job_id
       AND NOT EXISTS (SELECT FROM pending)
    RETURNING job.announced_again AS number
), added AS (
    INSERT INTO holdfast.announcements (job_id, name, kind, generation, attempt, again, failure, at, due_at)
    SELECT job_id, name, kind, generation, attempt, counted.number, failure, at, clock.now
      FROM ended, counted, holdfast.clock
        ON CONFLICT DO NOTHING
)
SELECT job_id::text FROM ended
