"""Dead letters, replay plans, tickets and retention in a SQLite file."""
