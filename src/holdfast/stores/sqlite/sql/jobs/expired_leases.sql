SELECT json_group_array(id)
  FROM (SELECT id
          FROM holdfast_jobs INDEXED BY holdfast_jobs_leased
         WHERE status = 'processing' AND lease_expires_at < :now
         ORDER BY lease_expires_at
         LIMIT :limit)
