-- A small partial index answers this: it contains only jobs whose cancellation was requested.
SELECT id::text FROM holdfast.jobs WHERE cancel_requested AND leased_by = $1
