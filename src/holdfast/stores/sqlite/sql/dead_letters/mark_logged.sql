UPDATE holdfast_tickets SET logged = 1 WHERE id IN (SELECT value FROM json_each(:ids))
