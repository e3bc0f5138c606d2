-- Of all workers that see a tick, one advances the schedule; the jobs are stored in the same transaction.
UPDATE holdfast_schedules SET last_at = :new WHERE name = :name AND last_at = :old
