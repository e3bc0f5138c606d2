"""The lease guard: it extends the leases of a worker whose event loop is blocked.

A handler that computes, or makes a blocking call, stops everything on the event loop, the extension of leases included.
Its jobs would be reclaimed and run a second time beside the first, though no worker was lost. So a thread watches the
loop. It does nothing while the loop extends its leases. When the loop has not done so for half a lease, the thread
extends, over a connection of its own, all that the store has leased to this worker: what runs, what has ended and is
not written yet, and claims whose answer the loop has not read.

A loop that stays blocked does not keep its jobs for ever: after ten leases the guard stops extending.
"""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.core.errors import StoreUnavailable
from holdfast.engine.execution.attempt import Attempt
from holdfast.engine.leases.lease_keeper import LeaseKeeper
from holdfast.engine.runtime import Runtime
from holdfast.ports import Clock, LeaseExtender, Logger

MOST_LEASES = 10
"""How many leases long the guard extends for a blocked loop."""

LONGEST_PAUSE = 1.0
"""Longest time between two checks, in seconds; a sixth of the lease if that is less."""

BLOCKED_AFTER = 5.0
"""Seconds without a heartbeat after which the loop counts as blocked; half of the lease if that is less."""

UNWRITTEN = 1_000
"""Log lines that are queued while the log blocks; older ones are dropped."""


class QueuedLog:
    """Log lines that one thread queues and another one writes.

    What blocks the event loop may be a log whose reader has stopped. A guard that wrote to the same log would block as
    well, and extend nothing.
    """

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._lines: deque[Callable[[], None]] = deque(maxlen=UNWRITTEN)

    def debug(self, event: str, **fields: Any) -> None:
        """Queue a line; so do the other methods."""
        self._lines.append(partial(self._logger.debug, event, **fields))

    def warning(self, event: str, **fields: Any) -> None:
        self._lines.append(partial(self._logger.warning, event, **fields))

    def error(self, event: str, **fields: Any) -> None:
        self._lines.append(partial(self._logger.error, event, **fields))

    def write(self) -> None:
        """Write the queued lines."""
        while self._lines:
            self._lines.popleft()()


class LeaseGuard:
    """Watches the event loop: one thread calls `check` and `close`, another `write_log`, the loop `beat`."""

    def __init__(
        self,
        worker: str,
        lease_keeper: LeaseKeeper,
        extender: LeaseExtender,
        held: Mapping[str, Attempt],
        *,
        lease: timedelta,
        clock: Clock,
        logger: Logger,
    ) -> None:
        self._worker = worker
        self._lease_keeper = lease_keeper
        self._extender = extender
        self._held = held
        self._lease = lease
        self._clock = clock
        self._logger = QueuedLog(logger)
        seconds = lease.total_seconds()
        self._pause = min(LONGEST_PAUSE, seconds / 6)
        self._blocked_after = min(BLOCKED_AFTER, seconds / 2)
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._heartbeat_at = self._checked_at = clock.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        # The attributes below belong to the thread.
        self._blocked_since: float | None = None
        self._extended_at: float | None = None
        self._gave_up = False

    def beat(self) -> None:
        """Show that the loop is alive, now and from time to time until `stop_beating`."""
        self._heartbeat_at = self._clock.monotonic()
        self._timer = self._loop.call_later(self._pause, self.beat)

    def stop_beating(self) -> None:
        """Cancel the timer of `beat`."""
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Log how long the loop was blocked, if that is due, and disconnect. Called in the thread."""
        self._report(self._clock.monotonic())
        self._extender.close()

    def write_log(self) -> float:
        """Write the lines that `check` has queued, and return the seconds until the next call."""
        self._logger.write()
        return self._pause

    def check(self) -> float:
        """Extend the leases if the loop has not done so for half a lease; return the seconds until the next call."""
        try:
            self._check(self._clock.monotonic())
        except StoreUnavailable as error:
            self._logger.warning("leases not extended", worker=self._worker, message=str(error))
        except Exception as error:  # noqa: BLE001 - the edge of the thread, which must go on
            self._logger.error("lease guard failed", worker=self._worker, message=type(error).__name__)
        self._checked_at = self._clock.monotonic()
        return self._pause

    def _check(self, now: float) -> None:
        # A process or machine that was suspended as a whole has no blocked loop: wait for the next check.
        stood_still = now - self._checked_at > self._pause + self._blocked_after / 2
        unextended = now - self._lease_keeper.extended_at
        if unextended < self._lease.total_seconds() / 2:
            self._stand_by()
        elif unextended < MOST_LEASES * self._lease.total_seconds():
            self._extend(now)
        elif not stood_still:
            self._give_up(unextended)
        if not stood_still:
            self._report(now)

    def _report(self, now: float) -> None:
        """Log when the loop becomes blocked, and when it runs again, with the time it was blocked."""
        beat_at, since = self._heartbeat_at, self._blocked_since
        if since is None and now - beat_at >= self._blocked_after:
            self._blocked_since = beat_at
            self._logger.warning(
                "event loop blocked",
                worker=self._worker,
                seconds=round(now - beat_at, 1),
                **self._blocking_code(),
            )
        elif since is not None and beat_at > since:
            self._blocked_since = None
            self._logger.warning(
                "event loop unblocked", worker=self._worker, seconds=round(beat_at - since, 1)
            )

    def _blocking_code(self) -> dict[str, Any]:
        """Return the job whose code the loop is in, and the line, as log fields."""
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
        self._logger.debug("leases extended by guard", worker=self._worker, jobs=jobs)

    def _give_up(self, unextended: float) -> None:
        if not self._gave_up:
            self._gave_up = True
            self._logger.error(
                "leases abandoned", worker=self._worker, seconds=round(unextended), **self._blocking_code()
            )
            self._extender.close()


def guard_leases(
    worker: str,
    runtime: Runtime,
    *,
    lease: timedelta,
    lease_keeper: LeaseKeeper,
    held: Mapping[str, Attempt],
) -> Callable[[], Awaitable[None]]:
    """Start a guard that extends leases while the event loop is blocked; the returned function stops it."""
    if runtime.watchdog is None:
        return _not_started
    guard = LeaseGuard(
        worker,
        lease_keeper,
        runtime.store.lease_extender(),
        held,
        lease=lease,
        clock=runtime.clock,
        logger=runtime.logger,
    )
    threads = AsyncExitStack()  # the log is closed last: it records how the guard ended

    async def stop() -> None:
        guard.stop_beating()
        await threads.aclose()

    try:
        threads.push_async_callback(runtime.watchdog.start(guard.write_log, close=guard.write_log))
        threads.push_async_callback(runtime.watchdog.start(guard.check, close=guard.close))
    except RuntimeError as error:  # no thread is available: the loop still extends its leases
        runtime.logger.warning("lease guard not started", worker=worker, message=str(error))
        return stop
    guard.beat()
    return stop


async def _not_started() -> None:
    """Stop a guard that was not started."""
