-- Scans the stubs of jobs that ended long ago, and returns those that are no longer needed. The time counts from the
-- end of the job: one that lived longer than keys are kept has its key afterwards, too. The key of a job that another
-- job submits begins with that job's id: as long as the submitting job is live it may run again, and must not submit
-- a second time.
SELECT stub.finished_at, stub.id,
       NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = stub.id)
       AND NOT EXISTS (SELECT 1 FROM holdfast_finished WHERE id = stub.id)
       AND NOT EXISTS (SELECT 1
                         FROM holdfast_job_keys AS taken
                        CROSS JOIN holdfast_jobs AS parent ON parent.id = substr(taken.key, 1, 36)
                        WHERE taken.job_id = stub.id) AS unneeded
  FROM holdfast_job_stubs AS stub
 WHERE (stub.finished_at, stub.id) > (:finished_at, :id)
   AND stub.finished_at <= :until
 ORDER BY stub.finished_at, stub.id
 LIMIT :walk
