"""The worker and the services that run in it."""
