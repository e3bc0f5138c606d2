-- Deletes keys that were taken long ago, and whose job is gone. What a job submits has a key that begins with its id: as
-- long as it lives it may run again, and shall not submit it a second time.
DELETE FROM holdfast_job_keys
 WHERE (owner, name, key) IN (SELECT taken.owner, taken.name, taken.key
                                FROM holdfast_job_keys AS taken
                               WHERE taken.created_at <= :until
                                 AND NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = taken.job_id)
                                 AND NOT EXISTS (SELECT 1 FROM holdfast_finished WHERE id = taken.job_id)
                                 AND NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = substr(taken.key, 1, 36))
                               LIMIT :limit)
