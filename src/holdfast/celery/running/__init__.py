"""Running dispatched jobs inside a process of a Celery worker."""
