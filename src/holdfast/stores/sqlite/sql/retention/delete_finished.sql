DELETE FROM holdfast_finished WHERE id IN (SELECT value FROM json_each(:ids))
