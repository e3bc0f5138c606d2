-- What nobody was told yet has to be told without its letter.
UPDATE holdfast_tickets SET facts = :facts WHERE job_id = :id AND told_at IS NULL
