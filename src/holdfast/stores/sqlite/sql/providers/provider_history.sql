-- Records events of a provider. [[kind, meta], ...]
INSERT INTO holdfast_provider_events (name, at, kind, meta)
SELECT :name, :now, event.value ->> 0, event.value ->> 1
  FROM json_each(:events) AS event
