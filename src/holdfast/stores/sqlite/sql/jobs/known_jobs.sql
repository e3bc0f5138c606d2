-- Returns which of these submissions were stored, after the answer to them was lost.
SELECT json_group_array(value)
  FROM json_each(:ids)
 WHERE EXISTS (SELECT 1 FROM holdfast_payloads WHERE job_id = value)
    OR EXISTS (SELECT 1 FROM holdfast_job_stubs WHERE id = value)
