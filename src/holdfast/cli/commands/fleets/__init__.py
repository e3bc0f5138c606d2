"""Commands for jobs that run on Celery and arq workers."""
