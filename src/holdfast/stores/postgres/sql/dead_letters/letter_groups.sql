-- The failure is that of the latest letter.
SELECT fingerprint, array_agg(DISTINCT name) AS names, count(*) AS letters,
       count(*) FILTER (WHERE state NOT IN ('verified', 'closed', 'discarded')) AS open,
       min(first_failure_at) AS first_seen, max(last_failure_at) AS last_seen,
       (array_agg(failure ORDER BY last_failure_at DESC, job_id DESC))[1] AS failure
  FROM holdfast.dead_letters
 WHERE ($1::uuid[] IS NULL OR job_id = ANY ($1))
   AND ($2::text[] IS NULL OR state = ANY ($2))
   AND ($3::text IS NULL OR name = $3)
   AND ($4::text IS NULL OR queue = $4)
   AND ($5::text IS NULL OR owner = $5)
   AND ($6::text IS NULL OR error_class = $6)
   AND ($7::text IS NULL OR fingerprint = $7)
   AND ($8::text IS NULL OR stage = $8)
   AND ($9::text IS NULL OR plan = $9)
   AND ($10::boolean IS NULL OR escalated = $10)
   AND ($11::integer IS NULL OR replays = $11)
   AND ($12::uuid IS NULL OR job_id < $12)
 GROUP BY fingerprint
 ORDER BY last_seen DESC, fingerprint
 LIMIT $13
