DELETE FROM holdfast_awaited WHERE child_id IN (SELECT value FROM json_each(:ids))
