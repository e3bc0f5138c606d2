-- Keeps jobs failed until the transaction ends: no other session can retry them or accept their late result. Jobs are
-- locked before their letters, the order in which every statement that ends or retries a job locks them.
SELECT id::text
  FROM holdfast.finished
 WHERE id = ANY ($1::uuid[])
   AND status = 'failed'
 ORDER BY finished.id
   FOR UPDATE
