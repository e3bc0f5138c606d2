-- Letters that are as they were seen, and stay so until the transaction ends. Their jobs are locked already.
SELECT letter.job_id::text
  FROM unnest($1::uuid[], $2::integer[]) AS wanted (job_id, version)
  JOIN holdfast.dead_letters AS letter USING (job_id)
 WHERE letter.version = wanted.version
   AND letter.state <> 'replaying'
 ORDER BY letter.job_id
   FOR UPDATE OF letter
