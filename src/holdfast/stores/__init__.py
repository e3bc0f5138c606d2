"""Where jobs live: SQLite in a file, PostgreSQL for many machines."""
