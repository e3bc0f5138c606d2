DELETE FROM holdfast_alarms WHERE name = :kind
