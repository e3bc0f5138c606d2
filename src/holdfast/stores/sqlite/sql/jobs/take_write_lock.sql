-- Takes the write lock in a caller's transaction. SQLite lets a transaction wait for it only before its first read:
-- one that looked for a key first would fail at once while another process writes.
DELETE FROM holdfast_jobs WHERE false
