-- Requeues claimed jobs, after a failure or untouched. The token is raised, so that the worker can write nothing more
-- for them. A suspected job that was not begun has spent no attempt that could be returned; it keeps its losses in a
-- row, and so does every job that is released. A job whose cancellation was requested is neither parked nor held: the
-- next claim ends it. A waiting job is not parked if it has an unread signal or if all jobs that it waits for have
-- ended. Jobs for which it waited before and waits no longer are deleted from its waits.
-- The batch is materialized first: with statistics of a table that was once small, SQLite would scan the table and
-- read the batch again for each of its rows.
WITH want AS MATERIALIZED (
    SELECT value ->> 0 AS id, value ->> 2 AS delay, value ->> 3 AS given_back, value ->> 4 AS kind,
           value ->> 6 AS seen, coalesce(value ->> 7, 0) AS awaits, value ->> 8 AS held_by, value ->> 9 AS keeps_losses
      FROM json_each(:batch)
)
UPDATE holdfast_jobs AS job
   SET status = 'queued',
       attempt = job.attempt - CASE WHEN job.suspicion = 1 THEN 0 ELSE want.given_back END,
       failed_runs = job.failed_runs + (want.kind = 'retry'),
       suspicion = 0,
       lease_token = job.lease_token + 1,
       losses = CASE WHEN want.keeps_losses OR job.suspicion = 1 THEN job.losses ELSE 0 END,
       excused = CASE WHEN want.keeps_losses OR job.suspicion = 1 THEN job.excused ELSE 0 END,
       leased_by = NULL,
       lease_expires_at = NULL,
       retry_after = CASE WHEN job.cancel_requested OR job.signals > want.seen OR (want.awaits AND job.pending = 0)
                          THEN NULL ELSE :now + want.delay END,
       waiting = want.seen IS NOT NULL AND NOT job.cancel_requested AND job.signals <= want.seen
                 AND NOT (want.awaits AND job.pending = 0),
       pending = CASE WHEN want.awaits THEN job.pending ELSE 0 END,
       held_by = CASE WHEN NOT job.cancel_requested THEN want.held_by END,
       let_out_by = NULL,
       updated_at = :now
  FROM want
 WHERE job.id = want.id
