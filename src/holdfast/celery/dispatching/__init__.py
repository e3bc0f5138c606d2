"""Dispatches to Celery workers: the transport, its message, and the senders."""
