-- A small partial index answers this: it contains only jobs whose cancellation was requested.
SELECT json_group_array(id)
  FROM holdfast_jobs INDEXED BY holdfast_jobs_to_cancel
 WHERE cancel_requested = 1 AND leased_by = :worker
