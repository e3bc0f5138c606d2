-- Locks letters whose version is still the one that was read and that still need not be kept. letters_to_archive.sql
-- has checked the same, but a plan that begins does not change its letters. Their plans and jobs are locked already,
-- so the result holds until the transaction ends.
SELECT letter.job_id::text
  FROM unnest($1::uuid[], $2::integer[]) AS requested (job_id, version)
  JOIN holdfast.dead_letters AS letter USING (job_id)
 WHERE letter.version = requested.version
   AND letter.state <> 'replaying'
   AND NOT EXISTS (SELECT FROM holdfast.plans WHERE token = letter.plan AND running)
   AND NOT EXISTS (SELECT FROM holdfast.awaited WHERE child_id = letter.job_id)
   AND NOT EXISTS (SELECT FROM holdfast.awaited_ends WHERE child_id = letter.job_id)
   AND NOT EXISTS (SELECT FROM holdfast.announcements WHERE job_id = letter.job_id)
 ORDER BY letter.job_id
   FOR UPDATE OF letter
