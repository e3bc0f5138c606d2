-- Takes tickets that are due, the most urgent first, and puts them off, each time for twice as long: whoever dies with
-- them leaves them to others, who cannot be told is not asked without end, and the less urgent have their turn
-- meanwhile. The ranks are named so that the index is read in order, and nothing of what is put off. SKIP LOCKED: of two
-- who take at once, each gets others.
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
