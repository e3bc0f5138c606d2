SELECT held_by, count(*) AS jobs FROM holdfast_jobs INDEXED BY holdfast_jobs_held WHERE held_by IS NOT NULL GROUP BY held_by
