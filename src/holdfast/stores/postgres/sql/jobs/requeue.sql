-- Requeues claimed jobs, after a failure or untouched. The token is raised, so that the worker can write nothing more
-- for them. A suspected job that was not begun has spent no attempt that could be returned; it keeps its losses in a
-- row, and so does every job that is released. A job whose cancellation was requested is neither parked nor held: the
-- next claim ends it. A waiting job is not parked if it has an unread signal or if all jobs that it waits for have
-- ended. Jobs for which it waited before and waits no longer are deleted from its waits.
-- The run that ends here is written to the history, under the name of its holder: the row is joined as it was, since
-- an update returns it as it becomes. A retry is announced, if the job announces retries.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), back AS (
    UPDATE holdfast.jobs AS job
       SET status = 'queued',
           attempt = job.attempt - CASE WHEN job.suspicion = 1 THEN 0 ELSE want.given_back END,
           failed_runs = job.failed_runs + (want.kind = 'retry')::integer,
           suspicion = 0,
           lease_token = job.lease_token + 1,
           losses = CASE WHEN want.keeps_losses OR job.suspicion = 1 THEN job.losses ELSE 0 END,
           excused = CASE WHEN want.keeps_losses OR job.suspicion = 1 THEN job.excused ELSE 0 END,
           leased_by = NULL,
           lease_expires_at = NULL,
           retry_after = CASE WHEN job.cancel_requested OR job.signals > want.seen OR (want.awaits AND job.pending = 0)
                              THEN NULL ELSE clock.now + want.delay END,
           waiting = want.seen IS NOT NULL AND NOT job.cancel_requested AND job.signals <= want.seen
                     AND NOT (coalesce(want.awaits, false) AND job.pending = 0),
           pending = CASE WHEN want.awaits THEN job.pending ELSE 0 END,
           held_by = CASE WHEN NOT job.cancel_requested THEN want.held_by END,
           let_out_by = NULL,
           updated_at = clock.now
      FROM clock, holdfast.jobs AS before,
           unnest($1::text[], $2::bigint[], $3::interval[], $4::integer[], $5::text[], $6::text[],
                  $7::integer[], $8::boolean[], $9::text[], $10::boolean[])
           AS want (id, token, delay, given_back, kind, meta, seen, awaits, held_by, keeps_losses)
     WHERE before.id = want.id::uuid
       AND job.id = want.id::uuid
       AND job.lease_token = want.token
       AND job.leased_by IS NOT NULL
    RETURNING job.id, want.token, before.leased_by, job.last_attempt, job.last_attempt_at, want.kind, want.meta,
              job.name, job.generation, job.failed_runs, job.announces
), history AS (
    INSERT INTO holdfast.job_events (job_id, at, kind, meta)
    SELECT id, last_attempt_at, 'processing', json_build_object('attempt', last_attempt, 'worker', leased_by)::text
      FROM back
     UNION ALL
    SELECT id, clock.now, kind, meta
      FROM back, clock
), announced AS (
    INSERT INTO holdfast.announcements (job_id, name, kind, generation, attempt, failure, at, due_at)
    SELECT id, name, 'retrying', generation, failed_runs, meta, clock.now, clock.now
      FROM back, clock
     WHERE kind = 'retry'
       AND announces & 16 <> 0
        ON CONFLICT DO NOTHING
)
SELECT id::text, token FROM back
