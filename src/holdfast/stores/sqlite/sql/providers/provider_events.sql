SELECT name, at, kind, meta FROM holdfast_provider_events WHERE name = :name ORDER BY seq DESC LIMIT :limit
