"""What a worker does again and again beside its jobs."""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.core.errors import StoreUnavailable
from holdfast.engine.availability import StoreAvailability
from holdfast.engine.parts import Parts

PUT_OFF = 1.0
"""Seconds until it is tried again when the store was away."""

LATER = 10.0
"""Seconds until it is tried again when something went wrong that nobody has thought of."""


async def rounds(
    once: Callable[[], Awaitable[float]], *, what: str, parts: Parts, availability: StoreAvailability
) -> None:
    """Do it, rest for as many seconds as it says, and do it again.

    A store that is away puts it off, and so does any other error: jobs go on without a clerk.
    """
    while True:
        try:
            pause = await once()
            availability.answered(what)
        except StoreUnavailable as error:
            availability.failed(what, error)
            pause = PUT_OFF
        except Exception as error:  # noqa: BLE001 - the edge of a clerk's round
            parts.journal.error("clerk failed", clerk=what, message=parts.describe(error))
            pause = LATER
        await asyncio.sleep(pause)
