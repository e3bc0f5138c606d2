"""Dead letters, replay plans, tickets and retention in PostgreSQL."""
