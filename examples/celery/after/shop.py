"""The shop whose Celery workers confirm orders: the same task, as a job that is not lost."""

import os
import time
from pathlib import Path

from celery import Celery

from holdfast import Holdfast
from holdfast.celery import RECOMMENDED_SETTINGS, CeleryTransport, durable, install

app = Celery("shop", broker=os.environ.get("BROKER_URL", "amqp://guest:guest@localhost:5672//"))
app.conf.update(RECOMMENDED_SETTINGS)

hold = Holdfast("sqlite:///shop.db")
hold.queue("confirmations", transport=CeleryTransport(app, queue="holdfast", slots=2))
install(app, hold)


@durable(hold, queue="confirmations")
@app.task
def confirm(order: int) -> None:
    """Send the confirmation of an order; the mail server takes its time."""
    Path(f"{order}.sending").touch()
    time.sleep(0.5)
    Path(f"{order}.sent").touch()
