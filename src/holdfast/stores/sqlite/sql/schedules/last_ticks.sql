SELECT name, last_at FROM holdfast_schedules WHERE name IN (SELECT value FROM json_each(:names))
