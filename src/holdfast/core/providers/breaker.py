"""The settings of a circuit breaker: when a provider counts as broken, and how it is tried again."""

from dataclasses import dataclass
from datetime import timedelta

from holdfast.core.durations import Duration, duration

LONGEST_PAUSE = 300.0
"""Seconds after which a provider that asked for a pause, or refuses every call, is tried again."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a provider counts as broken.

    It opens when more than *threshold* of the last *window* calls failed, none of them older than *age*, and
    at least *minimum* are known. After *cooldown*, *trials* calls decide whether it closes. With *slow_after*,
    it opens as well when more than *slow_threshold* of those calls took longer than that. A provider that asks for
    a pause gets *max_wait* at most.
    """

    window: int = 20
    minimum: int = 10
    threshold: float = 0.5
    age: Duration = timedelta(minutes=2)
    cooldown: Duration = timedelta(seconds=30)
    trials: int = 3
    slow_after: Duration | None = None
    slow_threshold: float = 0.8
    max_wait: Duration = timedelta(seconds=LONGEST_PAUSE)

    def __post_init__(self) -> None:
        """Raise `ValueError` for settings that could never open, or never close."""
        if not 1 <= self.minimum <= self.window:
            raise ValueError(
                f"A breaker's minimum must be from 1 to its window of {self.window}, not {self.minimum}; set minimum= too"
            )
        for part in (self.threshold, self.slow_threshold):
            if not 0 <= part < 1:
                raise ValueError(
                    f"A breaker's threshold must be a part of the calls, from 0 to below 1, not {part}"
                )
        if self.trials < 1:
            raise ValueError(f"A breaker needs at least one trial to close again, not {self.trials}")
        for value in (self.age, self.cooldown, self.slow_after):
            if value is not None and duration(value) <= timedelta(0):
                raise ValueError("A breaker's age, cooldown and slow_after must be positive")
        if not timedelta(seconds=LONGEST_PAUSE) <= duration(self.max_wait) <= timedelta(days=365):
            raise ValueError(
                f"max_wait= raises the limit of 300 s, to at most 365 d; {self.max_wait!r} does not"
            )

    def is_slow(self, seconds: float) -> bool:
        """Whether a call of that duration counts as slow."""
        return self.slow_after is not None and seconds > duration(self.slow_after).total_seconds()
