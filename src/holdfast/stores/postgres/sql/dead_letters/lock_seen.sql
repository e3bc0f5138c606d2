-- Letters that are as they were seen, and still need not be kept: letters_to_archive.sql has asked the same, but a plan
-- that begins changes none of its letters. They stay so until the transaction ends: their plans and jobs are locked
-- already.
SELECT letter.job_id::text
  FROM unnest($1::uuid[], $2::integer[]) AS wanted (job_id, version)
  JOIN holdfast.dead_letters AS letter USING (job_id)
 WHERE letter.version = wanted.version
   AND letter.state <> 'replaying'
   AND NOT EXISTS (SELECT FROM holdfast.plans WHERE token = letter.plan AND running)
   AND NOT EXISTS (SELECT FROM holdfast.awaited WHERE child_id = letter.job_id)
   AND NOT EXISTS (SELECT FROM holdfast.awaited_ends WHERE child_id = letter.job_id)
 ORDER BY letter.job_id
   FOR UPDATE OF letter
