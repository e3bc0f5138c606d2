-- Returns which of the workers that lost these jobs ran a job under suspicion, or were lost with one a while ago: the
-- leases of a worker expire one after the other. A worker is listed once for each of its jobs: the list is only
-- searched. With old statistics SQLite would read all jobs instead of the index of the few that are suspected.
SELECT json_group_array(lost.leased_by)
  FROM holdfast_jobs AS lost
 WHERE lost.id IN (SELECT value FROM json_each(:ids))
   AND (EXISTS (SELECT 1 FROM holdfast_jobs AS suspect INDEXED BY holdfast_jobs_suspected
                 WHERE suspect.suspicion = 2 AND suspect.leased_by = lost.leased_by)
        OR EXISTS (SELECT 1 FROM holdfast_lost_workers AS earlier
                    WHERE earlier.worker = lost.leased_by AND earlier.lost_at > :now - 3600000000))
