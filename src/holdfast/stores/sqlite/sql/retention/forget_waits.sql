-- What these jobs themselves waited for. Who waits for them is told, and forgotten then.
DELETE FROM holdfast_awaited WHERE parent_id IN (SELECT value FROM json_each(:ids))
