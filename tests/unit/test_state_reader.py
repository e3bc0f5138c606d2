"""What is stored of claimed jobs is read in bounded time, and a job that cannot be read waits longer each time."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

from holdfast.core.errors import StoreUnavailable
from holdfast.core.jobs.job import Claim
from holdfast.engine.claiming.state_reader import FIRST_DELAY, LONGEST_DELAY, REMEMBERED, StateReader
from holdfast.engine.store_retry import StoreRetry
from holdfast.testing.seeded_system import SeededRandom, VirtualClock
from holdfast.testing.virtual_loop import VirtualLoop
from tests.runtimes import a_runtime

WITHIN = timedelta(seconds=10)


class Lines:
    """A logger that a test can read."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))


class HeavyStore:
    """A store that takes for ever to read what it holds of some jobs, and may be away."""

    def __init__(self, *heavy: str) -> None:
        self.heavy = set(heavy)
        self.away = False

    async def stages(self, job_ids: Sequence[str]) -> list[Any]:
        if self.away:
            raise StoreUnavailable("away")
        if self.heavy & set(job_ids):
            await asyncio.Event().wait()
        return []

    signals = stages


class Scene:
    """A reader in virtual time."""

    def __init__(self, store: HeavyStore) -> None:
        self.loop = VirtualLoop()
        clock = VirtualClock(self.loop)
        self.logger = Lines()
        runtime = a_runtime(
            store=store,
            store_retry=StoreRetry(clock, SeededRandom(Random(1))),
            clock=clock,
            logger=self.logger,
            describe=str,
        )
        self.reader = StateReader("worker", runtime, within=WITHIN)

    def read(self, *job_ids: str, signals: int = 0) -> tuple[set[str], float]:
        """Read these jobs; say which were found, and how many seconds it took."""
        claims = [
            Claim(job_id, "work", "default", "", "{}", 1, 1, 7, 0, 1, False, None, signals=signals)
            for job_id in job_ids
        ]
        began = self.loop.time()
        found = self.loop.run_until_complete(self.reader.read(claims))
        return set(found), self.loop.time() - began

    def __enter__(self) -> "Scene":
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.close()


def test_a_job_that_takes_too_long_is_left_out_and_its_neighbours_are_read() -> None:
    with Scene(HeavyStore("heavy")) as scene:
        found, seconds = scene.read("one", "heavy", "two", signals=1)

    assert found == {"one", "two"}
    assert seconds <= 2 * WITHIN.total_seconds()
    assert scene.logger.lines == [
        ("claims released", {"worker": "worker", "jobs": 1, "message": "no answer within 10 s"})
    ]


def test_stages_and_signals_are_read_within_one_limit() -> None:
    store = HeavyStore()
    store.away = True

    with Scene(store) as scene:
        found, seconds = scene.read("one", signals=1)

    assert found == set()
    assert seconds <= WITHIN.total_seconds()


def test_a_job_that_cannot_be_read_waits_as_long_as_this_has_been_so_and_is_forgotten_when_it_can() -> None:
    store, delays = HeavyStore("heavy"), []

    with Scene(store) as scene:
        for _ in range(8):
            scene.read("heavy")
            delay = scene.reader.delay("heavy")
            delays.append(delay)
            scene.loop.run_until_complete(asyncio.sleep(delay.total_seconds()))
        store.heavy.clear()
        scene.read("heavy")

    assert delays[0] == FIRST_DELAY
    assert delays == sorted(delays)
    assert delays[-1] == LONGEST_DELAY
    assert scene.reader.delay("heavy") == FIRST_DELAY


def test_what_is_remembered_of_jobs_that_are_never_met_again_is_bounded() -> None:
    with Scene(HeavyStore("heavy")) as scene:
        scene.reader._failing = dict.fromkeys(map(str, range(REMEMBERED + 1)), 0.0)
        scene.read("heavy")

    assert len(scene.reader._failing) == 1
