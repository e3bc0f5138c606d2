-- Records in the history of jobs that their key was used again with another payload.
INSERT INTO holdfast_job_events (job_id, at, kind, meta)
SELECT value, :now, 'warning', :meta FROM json_each(:ids)
