SELECT name, state, count(*) FROM holdfast.dead_letters GROUP BY name, state
