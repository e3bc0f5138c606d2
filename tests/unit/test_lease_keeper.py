"""Leases are extended in time, however slow the store's other answers are, and however late the loop is."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from holdfast.core.errors import StoreUnavailable
from holdfast.engine.leases.cancel_watcher import CancelWatcher
from holdfast.engine.leases.lease_keeper import LeaseKeeper
from holdfast.engine.options import WorkerOptions
from holdfast.engine.store_availability import StoreAvailability
from holdfast.ports.store import Extension
from holdfast.testing.seeded_system import VirtualClock
from holdfast.testing.virtual_loop import VirtualLoop
from tests.runtimes import a_runtime

if TYPE_CHECKING:
    from holdfast.engine.execution.attempt import Attempt
    from holdfast.ports import Logger

NOTHING_NEW = Extension(frozenset(), frozenset())


class Lines:
    """A logger that a test can read."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    info = warning

    def events(self) -> list[str]:
        return [event for event, _ in self.lines]


class SlowStore:
    """A store that takes its time to say what is to be cancelled, and may be away when leases are extended."""

    def __init__(
        self,
        loop: VirtualLoop,
        *,
        cancel_requests: float = 0.0,
        away: tuple[int, ...] = (),
        locked: tuple[int, ...] = (),
    ) -> None:
        self._loop = loop
        self._locked = locked
        self._takes = cancel_requests
        self._away = away
        self.tries = 0
        self.extended: list[float] = []
        self.leases: set[tuple[str, int]] = set()

    async def extend(self, held: Any, *, lease: timedelta) -> Extension:
        self.tries += 1
        if self.tries in self._away:
            raise StoreUnavailable("away")
        self.leases.update(held)
        if self.tries in self._locked:
            return NOTHING_NEW._replace(locked=frozenset({"job", "ended"}))
        self.extended.append(self._loop.time())
        return NOTHING_NEW

    async def cancel_requests(self, worker: str) -> list[str]:
        await asyncio.sleep(self._takes)
        return []


def kept(
    seconds: float,
    *,
    lease: float,
    beside: Callable[[VirtualLoop], Any] | None = None,
    **store: Any,
) -> tuple[SlowStore, Lines]:
    """Let a keeper extend the lease of one job for a while."""
    loop, logger = VirtualLoop(), Lines()
    slow = SlowStore(loop, **store)

    async def run() -> None:
        claim = SimpleNamespace(id="job", token=1, name="work", queue="default")
        attempt = SimpleNamespace(claim=claim, deadline_due=lambda: False, trace=None)
        runtime = a_runtime(store=slow, clock=VirtualClock(loop), logger=logger)
        options = WorkerOptions(lease=timedelta(seconds=lease))
        held = {"job": cast("Attempt", attempt)}
        services = [
            LeaseKeeper("worker", runtime, options, held, {("ended", 7)}),
            CancelWatcher("worker", runtime, options, held),
        ]
        availability = StoreAvailability("worker", VirtualClock(loop), cast("Logger", logger))
        tasks = [service.start("worker", availability) for service in services]
        if beside is not None:
            tasks.append(asyncio.create_task(beside(loop)))
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    return slow, logger


def gaps(store: SlowStore) -> list[float]:
    """The seconds from one extension to the next, and to the first."""
    return [later - earlier for earlier, later in zip([0.0, *store.extended], store.extended, strict=False)]


def test_a_lease_is_extended_each_third_of_it() -> None:
    store, _ = kept(31, lease=9)

    assert len(store.extended) == 10
    assert max(gaps(store)) < 3.01


def test_a_slow_look_for_cancellations_delays_no_extension() -> None:
    store, logger = kept(60, lease=9, cancel_requests=2.2)

    assert max(gaps(store)) < 3.01
    assert logger.lines == []


def test_a_look_for_cancellations_is_given_up_after_a_third_of_the_lease() -> None:
    store, logger = kept(9, lease=3, cancel_requests=600)

    assert max(gaps(store)) < 1.01
    assert set(logger.events()) == {"cancellations not read"}
    assert logger.lines[0][1]["message"] == "no answer within 1 s"


def test_a_busy_loop_delays_an_extension_by_a_few_of_its_rounds() -> None:
    async def computes(loop: VirtualLoop) -> None:
        while True:
            loop._now += 0.4  # the loop seems to be blocked
            await asyncio.sleep(0)

    store, _ = kept(60, lease=9, beside=computes)

    assert max(gaps(store)) < 3 + 4 * 0.4


def test_an_extension_that_failed_is_tried_again_at_the_next_poll() -> None:
    store, logger = kept(9, lease=9, away=(1, 2))

    assert [round(at) for at in store.extended] == [5, 8]
    assert logger.events() == ["store unavailable", "store available"]


def test_what_has_ended_and_is_not_settled_is_extended_too() -> None:
    store, _ = kept(4, lease=9)

    assert store.leases == {("job", 1), ("ended", 7)}


def test_a_lease_that_is_locked_is_not_lost_and_is_tried_again_at_the_next_poll() -> None:
    store, logger = kept(12, lease=9, locked=(1, 2, 3))

    assert [round(at) for at in store.extended] == [6, 9]
    fields = {"job_id": "job", "name": "work", "queue": "default", "worker": "worker"}
    assert logger.lines == [("lease locked", fields)]
