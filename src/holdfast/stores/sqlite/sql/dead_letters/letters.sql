-- Ids grow with time, so newest first is the primary key read backwards, and a page ends at an id.
SELECT job_id, {letter_columns}
  FROM holdfast_dead_letters
 WHERE (:job_ids IS NULL OR job_id IN (SELECT value FROM json_each(:job_ids)))
   AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
   AND (:name IS NULL OR name = :name)
   AND (:queue IS NULL OR queue = :queue)
   AND (:owner IS NULL OR owner = :owner)
   AND (:error_class IS NULL OR error_class = :error_class)
   AND (:fingerprint IS NULL OR fingerprint = :fingerprint)
   AND (:stage IS NULL OR stage = :stage)
   AND (:plan IS NULL OR plan = :plan)
   AND (:escalated IS NULL OR escalated = :escalated)
   AND (:replays IS NULL OR replays = :replays)
   AND (:before IS NULL OR job_id < :before)
 ORDER BY job_id DESC
 LIMIT :limit
