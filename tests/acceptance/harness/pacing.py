"""Waiting, always for a condition and never for ever; and the pace of those who make trouble on purpose."""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

TICK = 0.02


def until(condition: Callable[[], T], *, within: float, what: str) -> T:
    """Return what *condition* gives as soon as that is true. Raises `TimeoutError` with *what* was awaited."""
    for _ in ticks(within):
        if found := condition():
            return found
    raise TimeoutError(f"after {within:g} s still waiting for {what}")


def ticks(seconds: float) -> Iterator[float]:
    """Come back again and again for *seconds*, the last time at their end; give the time since the start."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        yield passed
        time.sleep(min(TICK, seconds - passed))
    yield seconds
