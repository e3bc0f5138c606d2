SELECT extract(epoch FROM clock.now)::float8 AS now, letter.state, letter.letters, letter.repeated
  FROM holdfast.clock
  LEFT JOIN (SELECT state, count(*) AS letters, count(*) FILTER (WHERE repeated AND state = 'new') AS repeated
               FROM holdfast.dead_letters
              WHERE plan = $1
              GROUP BY state) AS letter ON true
