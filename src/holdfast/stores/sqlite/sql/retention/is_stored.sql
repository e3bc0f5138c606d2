-- Whether the letter exists, or its job, if that is to be restored, too.
SELECT EXISTS (SELECT 1 FROM holdfast_dead_letters WHERE job_id = :id)
       OR (:with_job
           AND (EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = :id)
                OR EXISTS (SELECT 1 FROM holdfast_finished WHERE id = :id)))
