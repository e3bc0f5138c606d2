-- Returns those of these letters whose version is still the one that was read and that still need not be kept.
-- letters_to_archive.sql has checked the same, but a plan that begins does not change its letters. [[job_id,
-- version], ...]
SELECT DISTINCT letter.job_id
  FROM json_each(:seen) AS seen
 CROSS JOIN holdfast_dead_letters AS letter ON letter.job_id = seen.value ->> 0
 WHERE letter.version = seen.value ->> 1
   AND letter.state <> 'replaying'
   AND NOT EXISTS (SELECT 1 FROM holdfast_plans WHERE token = letter.plan AND running = 1)
   AND NOT EXISTS (SELECT 1 FROM holdfast_awaited WHERE child_id = letter.job_id)
   AND NOT EXISTS (SELECT 1 FROM holdfast_awaited_ends WHERE child_id = letter.job_id)
   AND NOT EXISTS (SELECT 1 FROM holdfast_announcements WHERE job_id = letter.job_id)
 ORDER BY letter.job_id
