"""After an outage of the store that was longer than a lease, living workers keep their jobs, and dead ones lose theirs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Status
from holdfast.core.jobs.job import Claim
from holdfast.engine.leases.lease_keeper import LeaseKeeper
from holdfast.engine.options import WorkerOptions
from holdfast.engine.worker.maintenance import Maintenance
from holdfast.errors import StoreUnavailable
from holdfast.ports import Store
from holdfast.telemetry.logs import StructuredLogger
from holdfast.telemetry.metric_registry import MetricRegistry
from tests.builders import a_job
from tests.contract.conftest import DatabaseClock
from tests.contract.steps import LEASE, claimed, submitted
from tests.runtimes import a_runtime


class Steady:
    """The steady clock of a process, and random numbers that are always in the middle."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    def random(self) -> float:
        return 0.5


class Outage:
    """A store that is away when the test says so, for everything that writes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.away = False

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise StoreUnavailable("away")
        return getattr(self._store, name)


class Scene:
    """A worker that lives, one that is dead, and the maintenance and the keeper of the living one."""

    def __init__(self, store: Store, clock: DatabaseClock) -> None:
        self._store = store
        self._clock = clock
        self._steady = Steady()
        self._outage = Outage(store)
        self.unsettled: set[tuple[str, int]] = set()
        options = WorkerOptions(lease=LEASE)
        runtime = a_runtime(
            store=self._outage,
            clock=self._steady,
            random=self._steady,
            logger=StructuredLogger(),
            metrics=MetricRegistry(),
        )
        self.keeper = LeaseKeeper("alive", runtime, options, {}, self.unsettled)
        self.maintenance = Maintenance(runtime, options, lambda: None)

    async def claim(self, worker: str) -> Claim:
        await submitted(self._store, a_job())
        return await claimed(self._store, worker)

    async def pass_time(self, length: timedelta) -> None:
        await self._clock.advance(length)
        self._steady.seconds += length.total_seconds()

    async def outage(self, length: timedelta) -> None:
        """Let the store be away for *length*, while the maintenance goes on trying."""
        self._outage.away = True
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await self.maintenance.run_once()
            await self.pass_time(length / 3)
        self._outage.away = False

    async def status(self, claim: Claim) -> Status:
        return (await self._store.get(claim.id)).status


@pytest.fixture
def scene(store: Store, clock: DatabaseClock) -> Scene:
    return Scene(store, clock)


@pytest.mark.clause("JOB-4")
@pytest.mark.clause("JOB-5")
async def test_living_workers_extend_their_leases_before_anything_is_reclaimed(scene: Scene) -> None:
    ended, lost = await scene.claim("alive"), await scene.claim("dead")
    await scene.maintenance.run_once()
    await scene.outage(2 * LEASE)

    await scene.maintenance.run_once()
    assert await scene.status(ended) is await scene.status(lost) is Status.PROCESSING
    scene.unsettled.add((ended.id, ended.token))
    await scene.keeper.extend()
    await scene.pass_time(LEASE / 3)
    await scene.maintenance.run_once()

    assert await scene.status(ended) is Status.PROCESSING
    assert await scene.status(lost) is Status.QUEUED


@pytest.mark.clause("JOB-4")
async def test_a_call_that_failed_delays_no_reclaim(scene: Scene) -> None:
    lost = await scene.claim("dead")
    await scene.pass_time(LEASE)
    await scene.outage(LEASE / 4)

    await scene.maintenance.run_once()

    assert await scene.status(lost) is Status.QUEUED


@pytest.mark.clause("JOB-4")
async def test_an_outage_that_goes_on_after_one_answer_is_waited_for_again(scene: Scene) -> None:
    lost = await scene.claim("dead")
    await scene.outage(2 * LEASE)
    await scene.maintenance.run_once()
    await scene.outage(LEASE / 2)

    await scene.maintenance.run_once()
    assert await scene.status(lost) is Status.PROCESSING
    await scene.pass_time(LEASE / 3)
    await scene.maintenance.run_once()

    assert await scene.status(lost) is Status.QUEUED
