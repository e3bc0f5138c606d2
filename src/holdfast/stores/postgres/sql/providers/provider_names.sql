SELECT name FROM holdfast.providers ORDER BY name COLLATE "C"
