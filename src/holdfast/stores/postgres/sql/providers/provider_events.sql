SELECT name, at, kind, meta FROM holdfast.provider_events WHERE name = $1 ORDER BY seq DESC LIMIT $2
