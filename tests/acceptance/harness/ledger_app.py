"""The module that relay processes load: `tests.acceptance.harness.ledger_app:hold`."""

import os

from tests.acceptance.harness.ledger import build

hold = build(
    os.environ.get("DATABASE_URL", "sqlite:///ledger.db"),
    os.environ.get("BROKER_URL", "amqp://127.0.0.1:1/"),
)
