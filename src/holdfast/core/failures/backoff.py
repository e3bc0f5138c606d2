"""The delay before the next attempt.

Every shape is the same thing: a step that grows with each attempt, and a band around it from which chance
picks. The band is cut to fit under the ceiling *before* the pick, so that delays near the ceiling stay
spread out and do not cluster at it.
"""

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.core.durations import Duration, duration, parse_durations
from holdfast.core.failures.failure import Failure

CEILING = timedelta(seconds=300)
"""The longest that a retry waits, even if a backoff or a service asks for more, unless `max_wait` allows it."""

LONGEST = timedelta(days=365)
"""The largest value of `max_wait`."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """A growing delay with jitter. Use one of the named shapes.

    The step is `initial` after the first attempt and grows by `factor` up to `ceiling`. The delay lies
    between `step * (1 - below)` and `step * (1 + above) + extra`, never above `ceiling`.
    Raises `ValueError` if that describes no wait. One of more than 300 s needs a job or stage with `max_wait`.
    """

    initial: timedelta
    factor: float = 1.0
    ceiling: timedelta = CEILING
    below: float = 0.0
    above: float = 0.0
    extra: timedelta = timedelta(0)

    if TYPE_CHECKING:  # durations are given in any form, and read as timedelta

        def __init__(  # noqa: PLR0917 - the fields, in their order
            self,
            initial: Duration,
            factor: float = ...,
            ceiling: Duration = ...,
            below: float = ...,
            above: float = ...,
            extra: Duration = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Raise `ValueError` for values that describe no delay."""
        parse_durations(self, "initial", "ceiling", "extra")
        if self.ceiling > LONGEST:
            raise ValueError(
                f"A backoff's ceiling lies between 0 s and 365 d, not at {_seconds(self.ceiling)}"
            )
        if self.initial > self.ceiling:
            raise ValueError(
                f"A backoff starts between 0 s and its ceiling of {_seconds(self.ceiling)}, not at {_seconds(self.initial)}"
            )
        if not 1 <= self.factor < math.inf:
            raise ValueError(f"A backoff grows by a factor of 1 or more, not by {self.factor}")
        if not (0 <= self.below <= 1 and 0 <= self.above <= 1):
            raise ValueError(f"Jitter is a part of the delay, from 0 to 1, not {max(self.below, self.above)}")
        if self.extra > self.ceiling:
            raise ValueError(
                f"Jitter lies between 0 s and the ceiling of {_seconds(self.ceiling)}, not at {_seconds(self.extra)}"
            )

    @classmethod
    def exponential(
        cls, initial: Duration = 2, factor: float = 2, ceiling: Duration = CEILING, jitter: float = 0.2
    ) -> "Backoff":
        """Return a delay that grows exponentially, plus or minus the fraction *jitter* of it.

        >>> Backoff.exponential().delay(3, roll=0.5)
        datetime.timedelta(seconds=8)
        """
        return cls(initial, factor, ceiling, below=jitter, above=jitter)

    @classmethod
    def additive_jitter(
        cls, base: Duration = 5, jitter: Duration = 5, ceiling: Duration = CEILING
    ) -> "Backoff":
        """Return a wait that doubles, with up to *jitter* on top.

        >>> [Backoff.additive_jitter().delay(attempt, roll=1).seconds for attempt in (1, 2, 3)]
        [10, 15, 25]
        """
        return cls(base, 2.0, ceiling, extra=jitter)

    @classmethod
    def full_jitter(cls, initial: Duration = 1, ceiling: Duration = 60) -> "Backoff":
        """Return a wait anywhere between nothing and a step that doubles.

        >>> [Backoff.full_jitter().delay(attempt, roll=1).seconds for attempt in (1, 2, 3, 10)]
        [1, 2, 4, 60]
        """
        return cls(initial, 2.0, ceiling, below=1.0)

    @classmethod
    def constant(cls, seconds: Duration) -> "Backoff":
        """Return a wait that is always the same."""
        interval = duration(seconds)
        return cls(interval, ceiling=max(interval, CEILING))

    @classmethod
    def none(cls) -> "Backoff":
        """Return no wait at all: the next attempt is due at once."""
        return cls(timedelta(0))

    def delay(self, attempt: int, *, roll: float) -> timedelta:
        """Return how long to wait after attempt number *attempt*, from 1, has failed.

        *roll*, from 0 to 1, picks a point in the band. Any attempt number is fine, however high.
        """
        step, ceiling, extra = self._step(attempt), self.ceiling.total_seconds(), self.extra.total_seconds()
        high = min(step * (1 + self.above) + extra, ceiling)
        low = min(step * (1 - self.below), high - extra)
        return timedelta(seconds=low + roll * (high - low))

    def _step(self, attempt: int) -> float:
        first, last = self.initial.total_seconds(), self.ceiling.total_seconds()
        if first == 0 or self.factor == 1:
            return first
        # The exponent is bounded first: a power of two thousand would overflow.
        enough = math.ceil(math.log(last / first) / math.log(self.factor))
        return min(first * self.factor ** min(max(attempt, 1) - 1, enough), last)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How many attempts there are, the first included, and how long to wait between them, at most `max_wait`."""

    attempts: int
    backoff: Backoff
    max_wait: timedelta = CEILING

    def __post_init__(self) -> None:
        """Raise `ValueError` for a policy under which no job would run."""
        if not isinstance(self.attempts, int) or isinstance(self.attempts, bool) or self.attempts < 1:
            raise ValueError(f"A job needs at least one attempt, not {self.attempts!r}: the first one counts")
        if not CEILING <= self.max_wait <= LONGEST:
            raise ValueError(
                f"max_wait= raises the limit of 300 s, to at most 365 d; {_seconds(self.max_wait)} does not"
            )
        if self.backoff.ceiling > self.max_wait:
            raise ValueError(
                f"The backoff waits up to {_seconds(self.backoff.ceiling)}, which is more than {_seconds(self.max_wait)};"
                " allow it with max_wait="
            )

    def delay(self, attempt: int, failure: Failure, *, roll: float) -> timedelta:
        """Return how long to wait after *failure* ended attempt number *attempt*.

        The longer of the backoff and of what the service asked for, at most `max_wait`. A job never comes back
        before that time, for any *roll*.
        """
        return min(max(self.backoff.delay(attempt, roll=roll), failure.wait or timedelta(0)), self.max_wait)


def _seconds(interval: timedelta) -> str:
    return f"{interval.total_seconds():g} s"
