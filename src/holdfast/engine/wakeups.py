"""When an idle worker looks for jobs that it was notified of.

A notification reaches every listening worker, and one claim is enough for one job. So the worker that took the
jobs of a notification tells the others, if it has drained the queue; those that hear of it in time do not look.
It stays the first to react, for as long as it is idle: the others wait for a few milliseconds, each for another
time. Notifications and these messages may get lost: then a worker looks in vain, or at its next poll.
"""

import asyncio
from collections.abc import Callable, Collection

from holdfast.ports import Dice, Hint

SHORTEST = 0.01
"""Seconds that a worker leaves to the first one before it looks: longer than a claim and its message take."""

STEP = 0.002
"""Seconds for each listener, over which their looks are spread: of twenty, one or two have looked before it is known."""

LONGEST = 0.05
"""Seconds over which looks are spread at most, however many listen."""

FORGET_AFTER = 60.0
"""Seconds after which a worker that has heard of no other reacts at once again."""


class WakeUps:
    """Calls *wake* when it is time to look for jobs. A worker that hears of no other one looks at once."""

    def __init__(self, worker: str, queues: Collection[str], wake: Callable[[], None], *, dice: Dice) -> None:
        self._worker = worker
        self._queues = frozenset(queues)
        self._wake = wake
        self._dice = dice
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._notified: set[str] = set()
        self._listeners = 1
        self._alone_at = 0.0
        self._first_at: dict[str, float] = {}
        """From when on this worker is the first to look into a queue, after another one has been."""

    def notified(self, queue: str, *, load: float) -> None:
        """Look into *queue* soon, or into all for `""`; *load* is the part of the slots that is in use."""
        if not queue:
            self._wake()  # notifications may have been missed, so nobody knows of what
            return
        if queue not in self._queues:
            return
        self._notified.add(queue)
        delay = self._delay(queue, load)
        if not delay:
            self._wake()
        elif queue not in self._timers:
            self._timers[queue] = self._loop.call_later(delay, self._look, queue)

    def taken(self, hint: Hint) -> None:
        """Note that a worker has taken the jobs of a queue that others were notified of, too."""
        self._listeners = hint.listeners
        self._alone_at = self._loop.time() + FORGET_AFTER
        if hint.by != self._worker and hint.subject in self._queues:
            self._first_at[hint.subject] = self._alone_at
            self._stand_down(hint.subject)

    def looking(self, queue: str) -> bool:
        """Note that a claim begins; return whether notifications were its occasion.

        One that arrives from now on may be of a job that the claim does not see, and is an occasion of its own.
        """
        notified = queue in self._notified
        self._stand_down(queue)
        return notified

    def claimed(self, queue: str, *, jobs: int, room: int, notified: bool) -> bool:
        """Note what a claim brought; return whether the other workers are to be told that nothing is left."""
        if (
            jobs >= room
        ):  # there may be more: let them come, and tell them after the claim that leaves nothing
            if notified:
                self._notified.add(queue)
            return False
        if jobs:
            self._first_at.pop(queue, None)
        return bool(jobs) and notified and queue not in self._notified

    def close(self) -> None:
        """Wake nobody any more."""
        for queue in list(self._timers):
            self._stand_down(queue)

    def _delay(self, queue: str, load: float) -> float:
        now = self._loop.time()
        if now >= self._alone_at or (not load and now >= self._first_at.get(queue, 0.0)):
            return 0.0
        # Busy workers look later than idle ones, on average: a job is better off where it has the process to itself.
        spread = min(self._listeners * STEP, LONGEST) * (1 + load)
        return SHORTEST + self._dice.roll() * spread

    def _look(self, queue: str) -> None:
        del self._timers[queue]
        self._wake()

    def _stand_down(self, queue: str) -> None:
        self._notified.discard(queue)
        timer = self._timers.pop(queue, None)
        if timer is not None:
            timer.cancel()
