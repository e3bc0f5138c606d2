-- Deletes the stub of a job that was restored.
DELETE FROM holdfast.job_stubs WHERE id = $1::uuid
