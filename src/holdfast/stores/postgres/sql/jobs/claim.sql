-- Takes ready jobs in one statement; SKIP LOCKED keeps two workers off the same row, and the raised lease_token
-- fences the previous holder. The attempt is spent here, so that a crash is counted without a further write. Only a
-- job that has lost its worker before spends its attempt when it starts, in begin.sql: it may have to wait for a
-- slot, and another job may crash the process meanwhile. An attempt that was lost through another job's fault is
-- returned here, where the worker can see whether the job may run again.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), ready AS MATERIALIZED (
    SELECT id
      FROM holdfast.jobs
     WHERE queue = $4
       AND status = 'queued'
       AND retry_after IS NULL
       -- A job that was released because some worker knows its name is left to the workers that know it.
       AND (let_out_by IS NULL OR $3::text[] IS NULL OR let_out_by NOT LIKE E'\n%' OR name = ANY ($3))
     ORDER BY priority DESC, created_at, id
     LIMIT $5
       FOR UPDATE SKIP LOCKED
)
{lease_ready}
