-- Asks for a hint when these jobs end. Only jobs that somebody waits for announce their end.
-- Read the ended ones after this has committed: a job that ends in between is seen there.
UPDATE holdfast.jobs SET awaited = true WHERE id = ANY ($1::uuid[]) AND NOT awaited
