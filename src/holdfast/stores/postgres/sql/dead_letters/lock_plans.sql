-- Keeps the plans of letters as they are until the transaction ends: none of them begins meanwhile. A letter that comes
-- into another plan has another version by then.
SELECT token
  FROM holdfast.plans
 WHERE token IN (SELECT plan FROM holdfast.dead_letters WHERE job_id = ANY ($1::uuid[]))
 ORDER BY plans.token
   FOR SHARE
