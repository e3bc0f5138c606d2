UPDATE holdfast_tickets
   SET told_at = :now, quiet = :quiet
 WHERE id IN (SELECT value FROM json_each(:ids)) AND told_at IS NULL
