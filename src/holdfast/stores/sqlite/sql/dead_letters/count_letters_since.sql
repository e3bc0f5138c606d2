SELECT count(*) AS letters
  FROM holdfast_dead_letters INDEXED BY holdfast_dead_letters_failed
 WHERE last_failure_at >= :since
