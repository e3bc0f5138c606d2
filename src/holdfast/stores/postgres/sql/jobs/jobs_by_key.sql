-- Returns the jobs that own these keys.
SELECT taken.owner, taken.name, taken.key, taken.job_id::text, taken.fingerprint
  FROM unnest($1::text[], $2::text[], $3::text[]) AS requested (owner, name, key)
  JOIN holdfast.job_keys AS taken USING (owner, name, key)
