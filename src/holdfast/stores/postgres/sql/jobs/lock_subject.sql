-- Lets one submission at a time decide on a subject's versions, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast:' || $1 || ':' || $2 || ':' || $3, 0))
