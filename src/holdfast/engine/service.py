"""The loop of a background service: call `run_once`, rest, repeat, whatever fails."""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.core.errors import StoreUnavailable
from holdfast.engine.runtime import Runtime
from holdfast.engine.store_availability import StoreAvailability

STORE_PAUSE = 1.0
"""Seconds until the next try when the store was unavailable."""

ERROR_PAUSE = 10.0
"""Seconds until the next try after any other error."""


async def run_service(
    run_once: Callable[[], Awaitable[float]], *, name: str, runtime: Runtime, availability: StoreAvailability
) -> None:
    """Call *run_once*, rest for the seconds that it returns, and repeat.

    An unavailable store delays the next call, and so does any other error: jobs run on without the service.
    """
    while True:
        try:
            pause = await run_once()
            availability.answered(name)
        except StoreUnavailable as error:
            availability.failed(name, error)
            pause = STORE_PAUSE
        except Exception as error:  # noqa: BLE001 - the edge of a service's loop
            runtime.logger.error("background service failed", service=name, message=runtime.describe(error))
            pause = ERROR_PAUSE
        await asyncio.sleep(pause)
