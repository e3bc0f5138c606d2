-- Those that the table has just written. One with facts is older: its letter was deleted before anybody was told.
DELETE FROM holdfast_tickets WHERE job_id IN (SELECT value FROM json_each(:ids)) AND facts = '{}'
