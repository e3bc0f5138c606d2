-- Records in the history of jobs that their key was used again with another payload.
INSERT INTO holdfast.job_events (job_id, at, kind, meta)
SELECT id, clock.now, 'warning', $2
  FROM (SELECT now FROM holdfast.clock) AS clock, unnest($1::uuid[]) AS id
