"""What a worker process of the runs about dead letters loads: `tests.acceptance.harness.invoices_at_work:hold`."""

import os

from tests.acceptance.harness.invoices import build

hold = build(
    os.environ.get("DATABASE_URL", "sqlite:///invoices.db"),
    os.environ.get("SERVICE_URL", "http://127.0.0.1:1"),
).hold
