-- Takes jobs whose dispatches have arrived. A job that is not ready, or whose queue was paused meanwhile, is not taken;
-- its dispatch is forgotten all the same, so that it is dispatched again when it can be taken. Only one for workers that
-- know its name is kept if this one does not: it would be dispatched to the same workers again at once.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), named AS MATERIALIZED (
    SELECT job.id, job.let_out_by IS NULL OR $3::text[] IS NULL OR job.let_out_by NOT LIKE E'\n%'
                   OR job.name = ANY ($3) AS known
      FROM holdfast.jobs AS job
     WHERE job.id = ANY ($4::uuid[])
       AND job.status = 'queued'
       AND job.retry_after IS NULL
       AND NOT EXISTS (SELECT FROM holdfast.paused_queues AS pause WHERE pause.queue = job.queue)
       FOR UPDATE SKIP LOCKED
), ready AS MATERIALIZED (
    SELECT id FROM named WHERE known
), arrived AS (
    DELETE FROM holdfast.dispatches
     WHERE job_id = ANY ($4::uuid[])
       AND job_id NOT IN (SELECT id FROM named WHERE NOT known)
)
{lease_ready}
