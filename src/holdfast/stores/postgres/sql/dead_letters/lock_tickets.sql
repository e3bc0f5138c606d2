-- Locks the tickets of letters in the order of their ids, the order in which every statement locks them; a
-- notification waits.
SELECT job_id::text, told_at IS NOT NULL AS notified
  FROM holdfast.tickets
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY id
   FOR UPDATE
