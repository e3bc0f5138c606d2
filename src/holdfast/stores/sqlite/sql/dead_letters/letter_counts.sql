SELECT name, state, count(*) AS letters FROM holdfast_dead_letters GROUP BY name, state
