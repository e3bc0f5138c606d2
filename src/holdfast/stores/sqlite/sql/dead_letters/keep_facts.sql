-- Copies the facts of a letter into its tickets that were not notified yet: they are notified after the letter is
-- gone.
UPDATE holdfast_tickets SET facts = :facts WHERE job_id = :id AND told_at IS NULL
