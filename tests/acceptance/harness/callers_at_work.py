"""What a worker process of the runs about providers loads: `tests.acceptance.harness.callers_at_work:hold`."""

import os

from tests.acceptance.harness.callers import CALL_SECONDS, METERED, build

hold = build(
    os.environ["DATABASE_URL"],
    os.environ["SERVICE_URL"],
    rate=os.environ.get("RATE", f"{METERED}/s"),
    call_seconds=float(os.environ.get("CALL_SECONDS", CALL_SECONDS)),
).hold
