-- Returns what became of leases under which nothing could be written: the deadline ended them, or they are still
-- held. Leases that are not returned were lost.
SELECT want.id, want.token, true AS over
  FROM unnest($1::text[], $2::bigint[]) AS want (id, token)
  JOIN holdfast.finished AS job ON job.id = want.id::uuid
 WHERE job.timed_out_token = want.token
 UNION ALL
SELECT want.id, want.token, false
  FROM unnest($1::text[], $2::bigint[]) AS want (id, token)
  JOIN holdfast.jobs AS job ON job.id = want.id::uuid
 WHERE job.lease_token = want.token
   AND job.leased_by IS NOT NULL
