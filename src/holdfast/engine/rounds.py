"""What a worker does again and again beside its jobs."""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.core.errors import StoreUnavailable
from holdfast.ports import Journal

PUT_OFF = 1.0
"""Seconds until it is tried again when the store was away."""


async def rounds(once: Callable[[], Awaitable[float]], *, what: str, journal: Journal) -> None:
    """Do it, rest for as many seconds as it says, and do it again. A store that is away puts it off."""
    while True:
        try:
            pause = await once()
        except StoreUnavailable as error:
            journal.warning("clerk put off", clerk=what, message=str(error))
            pause = PUT_OFF
        await asyncio.sleep(pause)
