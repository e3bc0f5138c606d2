-- Locks a job and the jobs for which it is about to wait, in the order of their ids, as every statement that writes
-- several jobs does; so two of them cannot deadlock. A child that ends meanwhile ends after the wait is committed,
-- and wakes its parent. The parent is locked before a separate statement counts its children: that one sees every end
-- that earlier holders of the row lock have delivered.
SELECT id::text, id = $1::uuid AND lease_token = $2 AND leased_by IS NOT NULL AS holds
  FROM holdfast.jobs
 WHERE id = ANY ($3::uuid[] || $1::uuid)
 ORDER BY jobs.id
   FOR UPDATE
