-- Asks for a hint when these jobs end. Only jobs that somebody waits for announce their end.
-- Read the ended ones after this has committed: a job that ends in between is seen there.
-- Locked in the order of their ids, as by everybody who writes many jobs.
WITH live AS MATERIALIZED (
    SELECT id FROM holdfast.jobs WHERE id = ANY ($1::uuid[]) AND NOT awaited ORDER BY id FOR UPDATE
)
UPDATE holdfast.jobs AS job SET awaited = true FROM live WHERE job.id = live.id
