-- Restores a letter; its retention starts again, otherwise it would be archived at once.
INSERT INTO holdfast_dead_letters (job_id, kept_since, {letter_columns})
VALUES (:job_id, :now, {letter_values})
