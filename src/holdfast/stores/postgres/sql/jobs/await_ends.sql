-- Requests a notification when these jobs end: only jobs with such a request announce their end. Read the ended jobs
-- after this has committed: a job that ends in between is found there. Jobs are locked in the order of their ids, as
-- in every statement that writes several jobs.
WITH live AS MATERIALIZED (
    SELECT id FROM holdfast.jobs WHERE id = ANY ($1::uuid[]) AND NOT awaited ORDER BY id FOR UPDATE
)
UPDATE holdfast.jobs AS job SET awaited = true FROM live WHERE job.id = live.id
