"""Waiting, always for a condition and never for ever; and the pace of those who make trouble on purpose."""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

TICK = 0.02
ASK_EVERY = 0.2


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


def now_and_then(question: Callable[[], bool]) -> Callable[[], bool]:
    """Give a question that may be asked at every tick: it puts *question* five times a second at most.

    The machine has other work than to answer it. In between, the answer is no.
    """
    asked_at = time.monotonic() - ASK_EVERY

    def ask() -> bool:
        nonlocal asked_at
        if time.monotonic() - asked_at < ASK_EVERY:
            return False
        asked_at = time.monotonic()
        return question()

    return ask
