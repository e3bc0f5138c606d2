-- Copies the facts of a letter into its tickets that were not notified yet: they are notified after the letter is
-- gone.
UPDATE holdfast.tickets AS ticket
   SET facts = kept.facts
  FROM unnest($1::uuid[], $2::text[]) AS kept (job_id, facts)
 WHERE ticket.job_id = kept.job_id
   AND ticket.told_at IS NULL
