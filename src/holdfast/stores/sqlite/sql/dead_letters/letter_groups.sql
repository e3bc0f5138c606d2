-- Groups letters by fingerprint; the failure is that of the latest letter, and stands for the others.
SELECT fingerprint,
       (SELECT latest.failure
          FROM holdfast_dead_letters AS latest
         WHERE latest.fingerprint = letter.fingerprint
         ORDER BY latest.last_failure_at DESC, latest.job_id DESC
         LIMIT 1) AS failure,
       json_group_array(DISTINCT name) AS names,
       count(*) AS letters,
       sum(state NOT IN ('verified', 'closed', 'discarded')) AS open,
       min(first_failure_at) AS first_seen,
       max(last_failure_at) AS last_seen
  FROM holdfast_dead_letters AS letter
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
 GROUP BY fingerprint
 ORDER BY last_seen DESC, fingerprint
 LIMIT :limit
