-- Records that a job waits for other live jobs.
INSERT INTO holdfast.awaited (child_id, parent_id)
SELECT unnest($2::uuid[]), $1::uuid
    ON CONFLICT DO NOTHING
