DELETE FROM holdfast.dispatches WHERE job_id = ANY ($1::uuid[])
