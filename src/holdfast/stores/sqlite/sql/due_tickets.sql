-- What has to be told, the longest due first.
SELECT id, kind, raised_at, job_id, fingerprint, facts
  FROM holdfast_tickets INDEXED BY holdfast_tickets_due
 WHERE told_at IS NULL AND due_at <= :now
 ORDER BY due_at, id
 LIMIT :limit
