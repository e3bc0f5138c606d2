SELECT args FROM holdfast_original_args WHERE job_id = :id
