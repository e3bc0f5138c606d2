SELECT at, kind, meta FROM holdfast_job_events WHERE job_id = :id ORDER BY seq
