SELECT extract(epoch FROM clock.now)::float8 AS now, providers.name, providers.version, providers.state
  FROM holdfast.clock
  LEFT JOIN holdfast.providers ON providers.name = ANY ($1::text[])
