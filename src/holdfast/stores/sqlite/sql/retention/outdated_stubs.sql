-- Walks over stubs of jobs that ended long ago, and says which of them nothing needs any more. The time counts from the
-- end of the job: one that lived longer than keys are kept has its key afterwards, too. What a job submits has a key
-- that begins with its id: as long as it lives it may run again, and shall not submit it a second time.
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
