-- Writes the outcome of steps to letters; a step without a plan removes them from theirs, unless it closes them.
UPDATE holdfast_dead_letters
   SET version = version + 1,
       state = :state,
       cause = coalesce(:cause, cause),
       evidence = coalesce(:evidence, evidence),
       safe = coalesce(:safe, safe),
       notes = coalesce(:notes, notes),
       plan = CASE WHEN :state = 'closed' THEN plan ELSE :plan END,
       corrected = corrected OR :corrected,
       updated_at = :now
 WHERE job_id IN (SELECT value FROM json_each(:ids))
