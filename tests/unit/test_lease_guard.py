"""What extends leases while the event loop is blocked, and when it stops doing so."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.engine.execution.attempt import Attempt
from holdfast.engine.leases.lease_guard import MOST_LEASES, LeaseGuard

if TYPE_CHECKING:
    from holdfast.engine.leases.lease_keeper import LeaseKeeper
    from holdfast.ports import Clock, Logger

LEASE = 6.0


@dataclass
class Scene:
    """A guard beside a loop that blocks when the test says so."""

    now: float = 100.0
    extended: list[float] = field(default_factory=list)
    closed: int = 0
    lines: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    error: Exception | None = None
    held: dict[str, Attempt] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keeper = SimpleNamespace(extended_at=self.now)
        self.guard = LeaseGuard(
            "worker",
            cast("LeaseKeeper", self.keeper),
            self,
            self.held,
            lease=timedelta(seconds=LEASE),
            clock=cast("Clock", SimpleNamespace(monotonic=lambda: self.now)),
            logger=cast("Logger", SimpleNamespace(**dict.fromkeys(("debug", "warning", "error"), self._log))),
        )

    def extend(self, worker: str, *, lease: timedelta) -> int:
        if self.error is not None:
            raise self.error
        self.extended.append(self.now)
        return 1

    def close(self) -> None:
        self.closed += 1

    def _log(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    def events(self) -> list[str]:
        self.guard.write_log()
        return [event for event, _ in self.lines if event != "leases extended by guard"]

    def blocked_for(self, seconds: float) -> None:
        """Let time pass without a sign of life from the loop."""
        until = self.now + seconds
        while self.now < until:
            self.now += self.guard.check()

    def alive_for(self, seconds: float) -> None:
        """Let time pass while the loop extends its leases."""
        until = self.now + seconds
        while self.now < until:
            self.keeper.extended_at = self.now
            self.guard.beat()
            self.guard.stop_beating()
            self.now += self.guard.check()


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_a_loop_that_extends_its_leases_is_left_alone(scene: Scene) -> None:
    scene.alive_for(10 * LEASE)

    assert (scene.extended, scene.closed, scene.lines) == ([], 0, [])


async def test_leases_of_a_blocked_loop_are_extended_after_half_of_their_time(scene: Scene) -> None:
    began = scene.now

    scene.blocked_for(2 * LEASE)

    assert scene.extended[0] - began == pytest.approx(LEASE / 2)
    gaps = [later - earlier for earlier, later in zip(scene.extended, scene.extended[1:], strict=False)]
    assert max(gaps) <= LEASE / 3


async def test_the_connection_is_left_when_the_loop_is_back(scene: Scene) -> None:
    scene.blocked_for(LEASE)
    extended = len(scene.extended)

    scene.alive_for(LEASE)

    assert (len(scene.extended), scene.closed) == (extended, 1)


async def test_a_loop_that_is_blocked_for_good_loses_its_jobs(scene: Scene) -> None:
    began = scene.now

    scene.blocked_for(2 * MOST_LEASES * LEASE)

    assert MOST_LEASES * LEASE - LEASE / 3 <= scene.extended[-1] - began < MOST_LEASES * LEASE
    assert scene.events() == ["event loop blocked", "leases abandoned"]
    assert scene.closed == 1


async def test_a_loop_that_came_back_after_all_is_guarded_again(scene: Scene) -> None:
    scene.blocked_for(2 * MOST_LEASES * LEASE)
    scene.alive_for(LEASE)
    before = len(scene.extended)

    scene.blocked_for(LEASE)

    assert len(scene.extended) > before


async def test_a_store_that_is_away_is_tried_again(scene: Scene) -> None:
    scene.error = StoreUnavailable("away")
    scene.blocked_for(LEASE)
    scene.error = None

    scene.blocked_for(LEASE)

    assert scene.extended
    assert "leases not extended" in scene.events()


async def test_an_error_that_was_not_foreseen_does_not_end_the_guard(scene: Scene) -> None:
    scene.error = KeyError("a secret")
    scene.blocked_for(LEASE)
    scene.error = None

    scene.blocked_for(LEASE)

    assert scene.extended
    assert scene.events()
    [message] = {fields["message"] for event, fields in scene.lines if event == "lease guard failed"}
    assert message == "KeyError"


async def test_it_is_logged_once_which_job_blocks_the_loop_and_for_how_long(scene: Scene) -> None:
    claim = SimpleNamespace(id="7", name="resize")
    scene.held["7"] = cast("Attempt", SimpleNamespace(claim=claim, task=asyncio.current_task()))
    scene.blocked_for(LEASE)
    scene.alive_for(LEASE)
    scene.guard.write_log()

    [(blocked, fields), (unblocked, after)] = [
        line for line in scene.lines if line[0] != "leases extended by guard"
    ]
    assert (blocked, fields["name"], fields["job_id"]) == ("event loop blocked", "resize", "7")
    assert fields["seconds"] == LEASE / 2
    assert "lease_guard.py:" in fields["line"]
    assert (unblocked, after["seconds"]) == ("event loop unblocked", LEASE)


async def test_a_process_that_stood_still_as_a_whole_has_no_blocked_loop(scene: Scene) -> None:
    scene.alive_for(LEASE)
    scene.now += 3_600

    scene.now += scene.guard.check()
    scene.alive_for(LEASE)

    assert scene.events() == []


async def test_a_block_that_the_end_of_the_worker_follows_is_reported(scene: Scene) -> None:
    scene.blocked_for(LEASE)
    scene.guard.beat()
    scene.guard.stop_beating()

    scene.guard.close()

    assert scene.events() == ["event loop blocked", "event loop unblocked"]
    assert scene.closed == 1


async def test_the_thread_that_extends_writes_no_log(scene: Scene) -> None:
    scene.blocked_for(LEASE)
    scene.error = StoreUnavailable("away")
    scene.blocked_for(2 * MOST_LEASES * LEASE)
    scene.guard.close()

    assert scene.lines == []
    assert set(scene.events()) == {"event loop blocked", "leases not extended", "leases abandoned"}
