-- Beyond the last thousand, nobody looks at what happened to a provider.
DELETE FROM holdfast_provider_events
 WHERE name = :name
   AND seq <= (SELECT seq FROM holdfast_provider_events WHERE name = :name ORDER BY seq DESC LIMIT 1 OFFSET 1000)
