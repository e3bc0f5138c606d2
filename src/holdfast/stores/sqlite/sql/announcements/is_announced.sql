-- Returns whether an announcement of the end of a job is to be published.
SELECT count(*)
  FROM holdfast_announced_ends AS ended
  JOIN holdfast_announcements AS pending USING (job_id, generation, kind)
 WHERE ended.job_id = :id
