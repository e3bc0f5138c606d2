-- Keeps jobs failed until the transaction ends: nobody retries them, or lets their late result stand. Before their
-- letters are locked, since whoever ends or brings back a job has it in this order.
SELECT id::text
  FROM holdfast.finished
 WHERE id = ANY ($1::uuid[])
   AND status = 'failed'
 ORDER BY finished.id
   FOR UPDATE
