-- Deletes announcements in the transaction that stores their messages; held_announcements.sql has read them in it.
DELETE FROM holdfast_announcements WHERE sequence IN (SELECT value FROM json_each(:sequences))
