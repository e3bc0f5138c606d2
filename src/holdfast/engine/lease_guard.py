"""The lease guard: it extends the leases of a worker whose event loop is blocked.

A handler that computes, or calls something that blocks, stops everything on the loop, and the extension of leases with
it. Its jobs would be reclaimed and run a second time beside the first, though no worker was lost. So a thread looks at
the loop from outside. It does nothing while the loop extends its leases; where that has not happened for half a lease
it does so, with a connection of its own, for everything that the store says is leased to this worker: what runs, what
has ended and is not written yet, and what was claimed while nobody could read the answer.

A loop that never comes back must not hold its jobs for ever: after ten leases the guard lets them go.
"""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.core.errors import StoreUnavailable
from holdfast.engine.attempt import Attempt
from holdfast.engine.keeper import Keeper
from holdfast.ports import Clock, Journal, LeaseExtender

MOST_LEASES = 10
"""For how many leases a blocked loop keeps its jobs."""

LONGEST_PAUSE = 1.0
"""Seconds between two looks; a sixth of a short lease is less."""

BLOCKED_AFTER = 5.0
"""Seconds of silence after which a loop is called blocked; half of a short lease is less."""


UNWRITTEN = 1_000
"""Log lines that are kept while the log does not take them; older ones are dropped."""


class QueuedLog:
    """Log lines that one thread leaves here, and another one writes.

    What blocks the event loop may be a log that nobody reads. A guard that wrote to the same log would block as well, and
    extend nothing.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lines: deque[Callable[[], None]] = deque(maxlen=UNWRITTEN)

    def debug(self, event: str, **fields: Any) -> None:
        """Leave a line; so do the others."""
        self._lines.append(partial(self._journal.debug, event, **fields))

    def warning(self, event: str, **fields: Any) -> None:
        self._lines.append(partial(self._journal.warning, event, **fields))

    def error(self, event: str, **fields: Any) -> None:
        self._lines.append(partial(self._journal.error, event, **fields))

    def write(self) -> None:
        """Write what was left here."""
        while self._lines:
            self._lines.popleft()()


class LeaseGuard:
    """Runs beside the event loop: `check` and `close` belong to a thread, `write_log` to another, `beat` to the loop."""

    def __init__(
        self,
        worker: str,
        keeper: Keeper,
        extender: LeaseExtender,
        held: Mapping[str, Attempt],
        *,
        lease: timedelta,
        clock: Clock,
        journal: Journal,
    ) -> None:
        self._worker = worker
        self._keeper = keeper
        self._extender = extender
        self._held = held
        self._lease = lease
        self._clock = clock
        self._journal = QueuedLog(journal)
        seconds = lease.total_seconds()
        self._pause = min(LONGEST_PAUSE, seconds / 6)
        self._blocked_after = min(BLOCKED_AFTER, seconds / 2)
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._heartbeat_at = self._checked_at = clock.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        # What follows is the thread's.
        self._blocked_since: float | None = None
        self._extended_at: float | None = None
        self._gave_up = False

    def beat(self) -> None:
        """Show that the loop is alive, now and from time to time until `stop_beating`."""
        self._heartbeat_at = self._clock.monotonic()
        self._timer = self._loop.call_later(self._pause, self.beat)

    def stop_beating(self) -> None:
        """Leave no timer behind."""
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Disconnect, and say how long the loop was blocked if that is not said yet; in the thread, too."""
        self._report(self._clock.monotonic())
        self._extender.close()

    def write_log(self) -> float:
        """Write the log lines that `check` has left, and return the seconds until the next look."""
        self._journal.write()
        return self._pause

    def check(self) -> float:
        """Extend the leases if the loop has not done so for long, and return the seconds until the next look."""
        try:
            self._check(self._clock.monotonic())
        except StoreUnavailable as error:
            self._journal.warning("leases not extended", worker=self._worker, message=str(error))
        except Exception as error:  # noqa: BLE001 - the edge of the thread, which must go on
            self._journal.error("lease guard failed", worker=self._worker, message=type(error).__name__)
        self._checked_at = self._clock.monotonic()
        return self._pause

    def _check(self, now: float) -> None:
        # A process that was stopped as a whole, or a machine that slept, has no blocked loop: look again in a moment.
        stood_still = now - self._checked_at > self._pause + self._blocked_after / 2
        unextended = now - self._keeper.extended_at
        if unextended < self._lease.total_seconds() / 2:
            self._stand_by()
        elif unextended < MOST_LEASES * self._lease.total_seconds():
            self._extend(now)
        elif not stood_still:
            self._give_up(unextended)
        if not stood_still:
            self._report(now)

    def _report(self, now: float) -> None:
        """Log that the loop is blocked, as soon as that shows, and for how long it was."""
        heard_at, since = self._heartbeat_at, self._blocked_since
        if since is None and now - heard_at >= self._blocked_after:
            self._blocked_since = heard_at
            self._journal.warning(
                "event loop blocked", worker=self._worker, seconds=round(now - heard_at, 1), **self._culprit()
            )
        elif since is not None and heard_at > since:
            self._blocked_since = None
            self._journal.warning(
                "event loop unblocked", worker=self._worker, seconds=round(heard_at - since, 1)
            )

    def _culprit(self) -> dict[str, Any]:
        """Name the job whose code the loop is in, and the line."""
        found: dict[str, Any] = {}
        task = asyncio.current_task(self._loop)
        # Copied in one step of the interpreter: the loop may change it at any moment.
        for attempt in dict(self._held).values():
            if task is not None and attempt.task is task:
                found |= {"name": attempt.claim.name, "job_id": attempt.claim.id}
        frame = sys._current_frames().get(self._loop_thread)
        if frame is not None:
            found["line"] = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return found

    def _stand_by(self) -> None:
        if self._extended_at is not None or self._gave_up:
            self._extended_at, self._gave_up = None, False
            self._extender.close()

    def _extend(self, now: float) -> None:
        if self._extended_at is not None and now - self._extended_at < self._lease.total_seconds() / 6:
            return
        self._extended_at = now
        jobs = self._extender.extend(self._worker, lease=self._lease)
        self._journal.debug("leases extended by guard", worker=self._worker, jobs=jobs)

    def _give_up(self, unextended: float) -> None:
        if not self._gave_up:
            self._gave_up = True
            self._journal.error(
                "leases abandoned", worker=self._worker, seconds=round(unextended), **self._culprit()
            )
            self._extender.close()
