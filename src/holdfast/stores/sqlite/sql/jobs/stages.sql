SELECT job_id, name, call, status, attempt, fingerprint, brief_fingerprint, result, failure,
       (:now - stored_at) / 1e6 AS age
  FROM json_each(:ids) AS requested
 CROSS JOIN holdfast_stages ON job_id = requested.value
 ORDER BY stored_at
