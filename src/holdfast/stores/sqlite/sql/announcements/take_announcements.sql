-- Takes announcements that due_announcements.sql read in the same immediate transaction. If the process dies, another one
-- takes them later; the raised number of tries keeps this one from publishing them then.
UPDATE holdfast_announcements
   SET due_at = :now + :lease, tries = tries + 1
 WHERE sequence IN (SELECT value FROM json_each(:sequences))
