-- Returns what became of leases under which nothing could be written: the deadline ended them, or they are still
-- held. Leases that are not returned were lost. [[id, token], ...]
SELECT job.id, job.timed_out_token, true AS over
  FROM json_each(:batch) AS want
 CROSS JOIN holdfast_finished AS job ON job.id = want.value ->> 0
 WHERE job.timed_out_token = want.value ->> 1
 UNION ALL
SELECT job.id, job.lease_token, false
  FROM json_each(:batch) AS want
 CROSS JOIN holdfast_jobs AS job ON job.id = want.value ->> 0
 WHERE job.lease_token = want.value ->> 1
   AND job.leased_by IS NOT NULL
