-- Locks the plans of letters until the transaction ends, so that none of them begins meanwhile. A letter that is
-- moved to another plan has another version by then.
SELECT token
  FROM holdfast.plans
 WHERE token IN (SELECT plan FROM holdfast.dead_letters WHERE job_id = ANY ($1::uuid[]))
 ORDER BY plans.token
   FOR SHARE
