"""Waiting for a condition, always with a timeout, and polling at a bounded rate."""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

TICK = 0.02
ASK_EVERY = 0.2


def until(condition: Callable[[], T], *, within: float, what: str) -> T:
    """Return the result of *condition* as soon as it is true. Raises `TimeoutError`, which names *what* was awaited."""
    for _ in ticks(within):
        if found := condition():
            return found
    raise TimeoutError(f"after {within:g} s still waiting for {what}")


def ticks(seconds: float) -> Iterator[float]:
    """Yield the time since the start every `TICK` for *seconds*, the last time at their end."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        yield passed
        time.sleep(min(TICK, seconds - passed))
    yield seconds


def throttled(question: Callable[[], bool]) -> Callable[[], bool]:
    """Return a condition that may be polled at every tick: it evaluates *question* at most five times a second.

    In between it is false, so that polling a database does not load the machine.
    """
    asked_at = time.monotonic() - ASK_EVERY

    def ask() -> bool:
        nonlocal asked_at
        if time.monotonic() - asked_at < ASK_EVERY:
            return False
        asked_at = time.monotonic()
        return question()

    return ask
