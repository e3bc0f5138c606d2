SELECT json_group_array(value)
  FROM json_each(:ids)
 WHERE EXISTS (SELECT 1 FROM holdfast_finished WHERE id = value)
    OR EXISTS (SELECT 1 FROM holdfast_job_stubs WHERE id = value)
