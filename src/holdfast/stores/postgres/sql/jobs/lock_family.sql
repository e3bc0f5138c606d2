-- Locks a job and those that it is about to wait for, all in the order of their ids, as everybody does who writes
-- many, so that of two who meet one waits and the other does not. A child that ends meanwhile ends after the note
-- of the wait is committed, and tells. The parent is locked before its children are counted, which is a statement of
-- its own: that sees every end that was told by whoever held the row until now.
SELECT id::text, id = $1::uuid AND lease_token = $2 AND leased_by IS NOT NULL AS holds
  FROM holdfast.jobs
 WHERE id = ANY ($3::uuid[] || $1::uuid)
 ORDER BY jobs.id
   FOR UPDATE
