-- Of all workers that see a tick, one advances the schedule; the jobs are stored in the same transaction.
UPDATE holdfast.schedules SET last_at = $3 WHERE name = $1 AND last_at = $2 RETURNING name
