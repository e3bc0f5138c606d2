-- Spends the attempts of leased jobs that run under suspicion: if their worker is lost now, they are held
-- responsible. The claim has fixed the number of the attempt, so the statement is idempotent. [[id, token], ...]
UPDATE holdfast_jobs
   SET attempt = last_attempt, suspicion = 2, updated_at = :now
 WHERE id IN (SELECT value FROM json_each(:ids))
