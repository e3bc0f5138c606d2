UPDATE holdfast_payloads SET args = :args WHERE job_id IN (SELECT value FROM json_each(:ids))
