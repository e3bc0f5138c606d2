-- Finished stages stay; those that failed or were under way are run again.
DELETE FROM holdfast_stages WHERE job_id = :id AND status <> 'done'
