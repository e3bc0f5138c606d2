-- Deletes versions that were taken long ago, and whose job is gone.
DELETE FROM holdfast_job_versions
 WHERE (owner, name, subject, version) IN (
           SELECT taken.owner, taken.name, taken.subject, taken.version
             FROM holdfast_job_versions AS taken
            WHERE taken.created_at <= :until
              AND NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = taken.job_id)
              AND NOT EXISTS (SELECT 1 FROM holdfast_finished WHERE id = taken.job_id)
            LIMIT :limit)
