-- Releases a key that was reserved for a submission which was then rejected for another reason.
DELETE FROM holdfast.job_keys WHERE owner = $1 AND name = $2 AND key = $3 AND job_id = $4::uuid
