"""The module that worker processes load in the runs about dead letters: `tests.acceptance.harness.invoices_app:hold`."""

import os

from tests.acceptance.harness.invoices import build

hold = build(
    os.environ.get("DATABASE_URL", "sqlite:///invoices.db"),
    os.environ.get("SERVICE_URL", "http://127.0.0.1:1"),
).hold
