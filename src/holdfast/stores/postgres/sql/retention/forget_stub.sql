-- The job is back, whole.
DELETE FROM holdfast.job_stubs WHERE id = $1::uuid
