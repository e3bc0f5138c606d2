"""What another session has locked is written later, in its order, and holds nothing else up."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.core.jobs.job import Claim
from holdfast.core.jobs.transitions import StageWrite, Transition, complete
from holdfast.engine.store_retry import StoreRetry
from holdfast.engine.worker.attempt_outcome import AttemptOutcome
from holdfast.engine.worker.settler import Settler
from holdfast.ports.store import Settled
from holdfast.telemetry.metric_registry import MetricRegistry
from holdfast.wiring.system import SystemClock, SystemRandom
from tests.builders import a_stage
from tests.runtimes import a_runtime


class LockedStore:
    """A store in which jobs are locked until the test opens them; a write to them waits for that in vain."""

    def __init__(self, *locked: str) -> None:
        self.locked = set(locked)
        self.batches: list[list[Transition]] = []
        self.written: list[Transition] = []

    async def settle(self, worker: str, batch: list[Transition]) -> list[Settled]:
        self.batches.append(batch)
        await asyncio.sleep(0)
        locked = set(self.locked)
        self.written += [change for change in batch if change.id not in locked]
        return [Settled.LOCKED if change.id in locked else Settled.WRITTEN for change in batch]


class Scene:
    """A settler, its store and its log."""

    def __init__(self, *locked: str) -> None:
        self.store = LockedStore(*locked)
        self.lines: list[str] = []
        logger = SimpleNamespace(verbose=False, warning=self._log, info=self._log, debug=self._log)
        runtime = a_runtime(
            store=self.store,
            store_retry=StoreRetry(SystemClock(), SystemRandom()),
            describe=str,
            logger=logger,
            metrics=MetricRegistry(),
            development=False,
        )
        self.settler = Settler("worker", runtime)

    def _log(self, event: str, **_: Any) -> None:
        self.lines.append(event)

    def end(self, claim: Claim) -> Transition:
        change = complete(claim, "1")
        self.settler.post(AttemptOutcome.of(claim, change))
        return change

    async def until_written(self, *changes: Transition) -> None:
        async with asyncio.timeout(10):
            while not set(changes).issubset(self.store.written):
                await asyncio.sleep(0)


def a_lease(job_id: str) -> Claim:
    return cast("Claim", SimpleNamespace(id=job_id, token=1, attempt=1, name="work", queue="default"))


@pytest.fixture
def scene() -> Scene:
    return Scene("locked")


async def test_what_is_locked_is_written_when_it_is_opened_and_the_rest_before(scene: Scene) -> None:
    late, early = scene.end(a_lease("locked")), scene.end(a_lease("free"))
    await scene.until_written(early)
    more = scene.end(a_lease("another"))
    await scene.until_written(more)

    assert late not in scene.store.written
    assert (scene.settler.unsettled, scene.settler.leases) == (1, {("locked", 1)})
    scene.store.locked.clear()
    await scene.settler.drain()

    assert late in scene.store.written
    assert (scene.settler.unsettled, scene.settler.leases) == (0, set())
    assert scene.lines == ["job locked"]


async def test_the_end_of_a_job_does_not_overtake_its_stage(scene: Scene) -> None:
    claim = a_lease("locked")
    stage = a_stage(claim)
    assert isinstance(stage, StageWrite)
    stored = asyncio.create_task(scene.settler.store_stage(stage, claim))
    while len(scene.store.batches) < 2:
        await asyncio.sleep(0)
    end = scene.end(claim)
    other = scene.end(a_lease("free"))
    await scene.until_written(other)
    scene.store.locked.clear()

    assert await stored is Settled.WRITTEN
    await scene.settler.drain()
    assert [change for change in scene.store.written if change.id == "locked"] == [stage, end]


async def test_what_is_locked_at_the_end_is_given_up(scene: Scene) -> None:
    scene.end(a_lease("locked"))
    await asyncio.sleep(0.01)

    scene.settler.give_up()
    await asyncio.sleep(0.01)
    tries = len(scene.store.batches)
    await asyncio.sleep(0.01)

    assert (scene.settler.unsettled, len(scene.store.batches)) == (1, tries)


async def test_the_lease_of_an_end_whose_write_was_cancelled_is_left_to_run_out(scene: Scene) -> None:
    scene.end(a_lease("locked"))
    assert scene.settler.pending == {("locked", 1)}
    await asyncio.sleep(0.01)

    scene.settler.give_up()
    await asyncio.sleep(0.01)

    assert (scene.settler.pending, scene.settler.leases) == (set(), {("locked", 1)})
