"""A bad minute in the life of a shop, and what became of its orders. Run it with `make demo`.

Everything is real: processes that are killed, calls over HTTP, a database file. The provider that
misbehaves keeps a log of its own, and the last table compares that log with the database.
"""
