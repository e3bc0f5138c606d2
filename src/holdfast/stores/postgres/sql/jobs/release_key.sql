-- Gives a key back that was reserved for a submission which another rule turned away.
DELETE FROM holdfast.job_keys WHERE owner = $1 AND name = $2 AND key = $3 AND job_id = $4::uuid
