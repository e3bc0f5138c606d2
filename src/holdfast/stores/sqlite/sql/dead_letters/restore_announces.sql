-- Restores what a job announces: its replay announces it, and not its restore.
UPDATE holdfast_finished
   SET announces = :announces, runs = :runs, announced_again = :announced_again
 WHERE id = :id
