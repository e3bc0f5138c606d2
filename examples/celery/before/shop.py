"""A shop whose Celery workers confirm orders, as a team has it today."""

import os
import time
from pathlib import Path

from celery import Celery

app = Celery("shop", broker=os.environ.get("BROKER_URL", "amqp://guest:guest@localhost:5672//"))


@app.task
def confirm(order: int) -> None:
    """Send the confirmation of an order; the mail server takes its time."""
    Path(f"{order}.sending").touch()
    time.sleep(0.5)
    Path(f"{order}.sent").touch()
