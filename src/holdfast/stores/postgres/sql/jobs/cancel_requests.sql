-- A tiny partial index answers this: it holds only jobs that somebody wants cancelled.
SELECT id::text FROM holdfast.jobs WHERE cancel_requested AND leased_by = $1
