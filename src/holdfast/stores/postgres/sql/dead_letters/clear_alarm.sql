DELETE FROM holdfast.alarms WHERE name = $1 RETURNING name
