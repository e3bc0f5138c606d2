SELECT clock.now, schedules.name, schedules.last_at
  FROM holdfast.clock
  LEFT JOIN holdfast.schedules ON schedules.name = ANY ($1::text[])
