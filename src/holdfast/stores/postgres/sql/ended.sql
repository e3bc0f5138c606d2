SELECT id::text FROM holdfast.finished WHERE id = ANY ($1::uuid[])
