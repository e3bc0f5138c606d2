-- A tiny partial index answers this: it holds only jobs that somebody wants cancelled.
SELECT json_group_array(id)
  FROM holdfast_jobs INDEXED BY holdfast_jobs_to_cancel
 WHERE cancel_requested = 1 AND leased_by = :worker
