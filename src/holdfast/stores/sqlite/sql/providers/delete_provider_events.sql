-- Keeps the last thousand events of a provider.
DELETE FROM holdfast_provider_events
 WHERE name = :name
   AND seq <= (SELECT seq FROM holdfast_provider_events WHERE name = :name ORDER BY seq DESC LIMIT 1 OFFSET 1000)
