-- Puts a letter back; its retention begins again, or it would leave at once.
INSERT INTO holdfast_dead_letters (job_id, kept_since, {letter_columns})
VALUES (:job_id, :now, {letter_values})
