SELECT name FROM holdfast_providers ORDER BY name
