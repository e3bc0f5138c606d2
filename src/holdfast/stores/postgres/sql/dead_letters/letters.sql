-- Ids grow with time, so newest first is the primary key read backwards, and a page ends at an id.
SELECT job_id::text, {letter_columns}
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
 ORDER BY dead_letters.job_id DESC
 LIMIT $13
