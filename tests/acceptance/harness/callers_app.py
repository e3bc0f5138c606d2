"""The module that worker processes load in the runs about providers: `tests.acceptance.harness.callers_app:hold`."""

import os

from tests.acceptance.harness.callers import CALL_SECONDS, METERED, build

hold = build(
    os.environ.get("DATABASE_URL", "sqlite:///callers.db"),
    os.environ.get("SERVICE_URL", "http://127.0.0.1:1"),
    rate=os.environ.get("RATE", f"{METERED}/s"),
    call_seconds=float(os.environ.get("CALL_SECONDS", CALL_SECONDS)),
).hold
