SELECT count(*) AS letters
  FROM holdfast.dead_letters
 WHERE last_failure_at >= (SELECT now FROM holdfast.clock) - $1::interval
