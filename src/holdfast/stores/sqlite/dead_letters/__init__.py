"""Dead letters, replay plans and tickets in a SQLite file, and how long all of it is kept."""
