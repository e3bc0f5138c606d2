-- Notes in the history of jobs that somebody used their key again with another payload.
INSERT INTO holdfast_job_events (job_id, at, kind, meta)
SELECT value, :now, 'warning', :meta FROM json_each(:ids)
