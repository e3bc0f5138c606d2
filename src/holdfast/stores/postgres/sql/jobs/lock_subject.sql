-- Serializes submissions for one subject until the transaction ends, while they decide on its versions.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast:' || $1 || ':' || $2 || ':' || $3, 0))
