-- Runs in the same immediate transaction as due_tickets.sql, so nobody comes between.
UPDATE holdfast_tickets SET due_at = :now + :lease WHERE id IN (SELECT value FROM json_each(:ids))
