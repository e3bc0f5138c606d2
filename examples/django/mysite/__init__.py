"""The project: its settings and addresses."""
