SELECT state, count(*) AS letters, sum(state = 'new' AND repeated) AS repeated
  FROM holdfast_dead_letters INDEXED BY holdfast_dead_letters_planned
 WHERE plan = :token
 GROUP BY state
