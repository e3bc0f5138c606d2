UPDATE holdfast_dead_letters
   SET version = version + 1, state = 'replaying', replays = replays + 1, updated_at = :now
 WHERE job_id IN (SELECT value FROM json_each(:ids))
