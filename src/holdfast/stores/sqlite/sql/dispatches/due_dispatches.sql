-- Reads the ready jobs of a queue that are to be dispatched, in the order in which they would be claimed.
SELECT json_group_array(id)
  FROM (SELECT id
          FROM holdfast_jobs INDEXED BY holdfast_jobs_ready
         WHERE queue = :queue
           AND status = 'queued'
           AND retry_after IS NULL
           AND id NOT IN (SELECT value FROM json_each(:outstanding))
           AND NOT EXISTS (SELECT 1 FROM holdfast_paused_queues WHERE queue = :queue)
         ORDER BY priority DESC, created_at, id
         LIMIT :limit)
