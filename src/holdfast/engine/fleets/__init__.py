"""Fleets: jobs that run in the Celery or arq workers that a team has."""
