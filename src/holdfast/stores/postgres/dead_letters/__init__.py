"""Dead letters, replay plans and tickets in PostgreSQL, and how long all of it is kept."""
