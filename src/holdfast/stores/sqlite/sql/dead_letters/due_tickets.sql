-- Tickets that are due, the most urgent first, and of those the longest due. The ranks are listed so that the index
-- is read in order, without the postponed tickets.
SELECT id, kind, raised_at, job_id, fingerprint, facts, logged
  FROM holdfast_tickets INDEXED BY holdfast_tickets_due
 WHERE told_at IS NULL AND rank IN (0, 1, 2) AND due_at <= :now
 ORDER BY rank, due_at, id
 LIMIT :limit
