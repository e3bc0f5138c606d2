INSERT INTO holdfast_job_events (job_id, at, kind, meta)
SELECT id, timed_out_at, 'expired', json_object('late', json('true')) FROM holdfast_finished WHERE id = :id
 UNION ALL
SELECT id, :now, 'accepted', :meta FROM holdfast_finished WHERE id = :id
