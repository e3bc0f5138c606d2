-- Takes tickets that are due, the most urgent first, and postpones them, each time for twice as long: if the process
-- dies, another one takes them later, and a channel that fails is not called endlessly while less urgent tickets
-- wait. The ranks are listed so that the index is read in order, without the postponed tickets. SKIP LOCKED gives
-- concurrent sessions different tickets.
WITH clock AS MATERIALIZED (
    SELECT now FROM holdfast.clock
), due AS MATERIALIZED (
    SELECT id
      FROM holdfast.tickets
     WHERE told_at IS NULL
       AND rank IN (0, 1, 2)
       AND due_at <= (SELECT now FROM clock)
     ORDER BY rank, due_at, id
     LIMIT $1
       FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE holdfast.tickets AS ticket
       SET due_at = clock.now + $2::interval * power(2, least(ticket.tries, 6)),
           tries = ticket.tries + 1
      FROM clock, due
     WHERE ticket.id = due.id
    RETURNING ticket.id, ticket.kind, ticket.raised_at, ticket.job_id::text, ticket.fingerprint, ticket.facts,
              ticket.logged, ticket.rank
)
SELECT id, kind, raised_at, job_id, fingerprint, facts, logged FROM taken ORDER BY rank, raised_at, id
