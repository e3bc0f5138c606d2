DELETE FROM holdfast_awaited_ends WHERE child_id IN (SELECT value FROM json_each(:ids))
