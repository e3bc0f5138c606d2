-- The next letters of a plan, the oldest first. Runs in the same immediate transaction as advance_plan.sql.
SELECT job_id
  FROM holdfast_dead_letters INDEXED BY holdfast_dead_letters_planned
 WHERE plan = :token AND state = 'validated'
 ORDER BY job_id
 LIMIT :take
