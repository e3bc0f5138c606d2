"""When an idle worker claims after a notification.

A notification reaches every subscribed worker, and one claim is enough for one job. So the worker that claimed the jobs
of a notification, and has drained the queue, notifies the others; those that receive this in time do not claim. That
worker stays the first to react for as long as it is idle: the others wait for a few milliseconds, each for a different
time. Notifications of both kinds may get lost: then a worker claims nothing, or claims at its next poll.
"""

import asyncio
from collections.abc import Callable, Collection

from holdfast.ports import Hint, Random

SHORTEST = 0.01
"""Shortest delay in seconds before another worker claims: longer than a claim and its notification take."""

STEP = 0.002
"""Seconds per subscribed worker over which their claims are spread: of twenty, one or two claim nothing."""

LONGEST = 0.05
"""Longest spread in seconds, however many workers are subscribed."""

FORGET_AFTER = 60.0
"""Seconds without a notification from another worker after which a worker reacts at once again."""


class WakeUps:
    """Calls *wake* when it is time to claim. A worker that knows of no other one claims at once."""

    def __init__(
        self, worker: str, queues: Collection[str], wake: Callable[[], None], *, random: Random
    ) -> None:
        self._worker = worker
        self._queues = frozenset(queues)
        self._wake = wake
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._notified: set[str] = set()
        self._listeners = 1
        self._alone_at = 0.0
        self._first_at: dict[str, float] = {}
        """When this worker becomes the first to claim from a queue again, after another one has been."""

    def notified(self, queue: str, *, load: float) -> None:
        """Claim from *queue* soon, or from all for `""`; *load* is the fraction of the slots in use."""
        if not queue:
            self._wake()  # notifications may have been missed, of any queue
            return
        if queue not in self._queues:
            return
        self._notified.add(queue)
        delay = self._delay(queue, load)
        if not delay:
            self._wake()
        elif queue not in self._timers:
            self._timers[queue] = self._loop.call_later(delay, self._timer_fired, queue)

    def taken(self, hint: Hint) -> None:
        """Note that a worker has claimed the jobs of a queue that others were notified of, too."""
        self._listeners = hint.listeners
        self._alone_at = self._loop.time() + FORGET_AFTER
        if hint.by != self._worker and hint.subject in self._queues:
            self._first_at[hint.subject] = self._alone_at
            self._stand_down(hint.subject)

    def looking(self, queue: str) -> bool:
        """Note that a claim begins; return whether a notification caused it.

        A notification that arrives from now on may be of a job that this claim does not see, and causes another.
        """
        notified = queue in self._notified
        self._stand_down(queue)
        return notified

    def claimed(self, queue: str, *, jobs: int, room: int, notified: bool) -> bool:
        """Note the result of a claim; return whether to notify the other workers that the queue is drained."""
        if (
            jobs >= room
        ):  # there may be more: let them claim, and notify them after the claim that drains the queue
            if notified:
                self._notified.add(queue)
            return False
        if jobs:
            self._first_at.pop(queue, None)
        return bool(jobs) and notified and queue not in self._notified

    def close(self) -> None:
        """Cancel all timers: *wake* is not called any more."""
        for queue in list(self._timers):
            self._stand_down(queue)

    def _delay(self, queue: str, load: float) -> float:
        now = self._loop.time()
        if now >= self._alone_at or (not load and now >= self._first_at.get(queue, 0.0)):
            return 0.0
        # Busy workers claim later than idle ones, on average: a job is better off in an idle process.
        spread = min(self._listeners * STEP, LONGEST) * (1 + load)
        return SHORTEST + self._random.random() * spread

    def _timer_fired(self, queue: str) -> None:
        del self._timers[queue]
        self._wake()

    def _stand_down(self, queue: str) -> None:
        self._notified.discard(queue)
        timer = self._timers.pop(queue, None)
        if timer is not None:
            timer.cancel()
