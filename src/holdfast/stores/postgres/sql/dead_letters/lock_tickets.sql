-- The tickets of letters, in the order of their ids, as everybody locks them; whoever tells one waits.
SELECT job_id::text, told_at IS NOT NULL AS told
  FROM holdfast.tickets
 WHERE job_id = ANY ($1::uuid[])
 ORDER BY id
   FOR UPDATE
