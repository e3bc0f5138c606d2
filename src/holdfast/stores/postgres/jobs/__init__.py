"""Jobs in PostgreSQL: submitted, dispatched to fleets, and settled."""
