-- Stores jobs durably. The submitter chooses the id, so a submission that is sent again after a lost answer creates
-- no second job. A notification is sent with the commit, at most one per queue. Names, queues, owners, priorities
-- and announcements that are equal for the whole batch are passed as one value.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), item AS MATERIALIZED (
    SELECT *
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::smallint[],
                  $8::interval[], $9::timestamptz[], $10::text[], $11::bigint[], $12::text[], $13::interval[],
                  $14::timestamptz[])
           AS item (id, args, name, queue, owner, priority, announces, delay, run_at, subject, version, trace, deadline,
                    deadline_at)
), job AS (
    INSERT INTO holdfast.jobs (
        id, name, queue, owner, priority, created_at, queued_at, updated_at, retry_after, subject, version, trace,
        deadline_at, announces)
    SELECT id::uuid, coalesce(name, ($3::text[])[1]), coalesce(queue, ($4::text[])[1]),
           coalesce(owner, ($5::text[])[1]), coalesce(priority, ($6::smallint[])[1]), clock.now, clock.now, clock.now,
           CASE WHEN run_at > clock.now THEN run_at ELSE clock.now + delay END, subject, version, trace,
           coalesce(deadline_at, clock.now + deadline), coalesce(announces, ($7::smallint[])[1])
      FROM item, clock
), payload AS (
    INSERT INTO holdfast.payloads (job_id, args)
    SELECT id::uuid, args FROM item
)
SELECT pg_notify('holdfast', 'ready:' || queue)
  FROM unnest($15::text[]) AS queue
