SELECT args FROM holdfast.original_args WHERE job_id = $1::uuid
