"""How a worker and the store exchange what all workers share of a provider, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar, cast

import pytest

from holdfast.core.providers.breaker import Breaker
from holdfast.core.providers.breaker_state import BreakerState
from holdfast.core.providers.call_reports import CallOutcome
from holdfast.core.providers.limits import SLACK, Grant, Limits, Rate
from holdfast.core.providers.provider import ProviderSpec
from holdfast.core.providers.provider_state import ProviderState
from holdfast.engine.providers.limiter import Limiter
from holdfast.engine.providers.provider_cache import CallToken
from holdfast.engine.providers.provider_link import LinkRuntime, ProviderLink
from holdfast.engine.providers.shared_state import LONGEST_REST, HistoryEntry, SharedState, swap
from holdfast.engine.store_retry import StoreRetry
from holdfast.ports import Store
from holdfast.ports.providers import KeyWrite, ProviderRow
from holdfast.telemetry.logs import StructuredLogger
from holdfast.telemetry.metric_registry import MetricRegistry
from holdfast.testing.seeded_system import VirtualClock
from holdfast.testing.virtual_loop import VirtualLoop

T = TypeVar("T")

LLM = ProviderSpec("llm", breaker=Breaker(window=1_000, minimum=1_000))
"""Its breaker knows of too few calls to open."""

PER_SECOND = Limits(rate=Rate.of("50/s"))


class SleepyLoop(VirtualLoop):
    """A loop whose process can be stopped for a while: all that was due meanwhile comes late."""

    def sleep_through(self, seconds: float) -> None:
        self._now += seconds


@contextmanager
def opened(loop: SleepyLoop) -> Iterator[SleepyLoop]:
    try:
        yield loop
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* on a virtual loop of its own."""
    with opened(SleepyLoop()) as loop:
        return loop.run_until_complete(main)


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Chance:
    """Random numbers that are always high, counted."""

    drawn: int = 0

    def random(self) -> float:
        self.drawn += 1
        return 1.0


@dataclass
class Shelf:
    """As much of a store as keeps one provider. It takes its time, and refuses as many writes as the test says."""

    row: ProviderRow | None = None
    takes: float = 0.0
    refuses: int = 0
    asked_at: list[float] = field(default_factory=list)

    @property
    def providers(self) -> "Shelf":
        return self

    async def read(self, names: Sequence[str]) -> tuple[float, dict[str, ProviderRow]]:
        self.asked_at.append(now())
        await asyncio.sleep(self.takes)
        return now(), {} if self.row is None else {names[0]: self.row}

    async def swap(
        self,
        _name: str,
        version: int,
        state: str,
        _events: Sequence[tuple[str, str]] = (),
        *,
        keys: Sequence[KeyWrite] = (),
    ) -> bool:
        assert not keys
        await asyncio.sleep(self.takes)
        self.refuses -= 1
        if self.refuses >= 0 or version != (0 if self.row is None else self.row.version):
            return False
        self.row = ProviderRow(version + 1, state)
        return True


def as_store(shelf: Shelf) -> Store:
    return cast("Store", shelf)


def a_line(
    shelf: Shelf, spec: ProviderSpec = LLM, *, chance: Chance | None = None, worker: str = "worker"
) -> ProviderLink:
    random = chance or Chance()
    store_retry = StoreRetry(VirtualClock(asyncio.get_running_loop()), random)
    exchange = LinkRuntime(
        store=as_store(shelf),
        worker=worker,
        store_retry=store_retry,
        random=random,
        logger=StructuredLogger(),
        metrics=MetricRegistry(),
        changed=lambda: None,
    )
    return ProviderLink(spec, exchange)


def failed(line: ProviderLink) -> None:
    line.report(CallToken(1), CallOutcome.FAILURE, 0.1)


@pytest.mark.clause("BRK-4")
def test_a_call_waits_for_the_failures_that_were_met_before_it_and_for_no_later_ones() -> None:
    async def main() -> float:
        line = a_line(Shelf(takes=1.0))

        async def keep_failing() -> None:
            while True:
                failed(line)
                await asyncio.sleep(0.1)

        failing = asyncio.create_task(keep_failing())
        await asyncio.sleep(0.25)
        async with asyncio.timeout(60):
            await line.breaker_state()
        failing.cancel()
        return now()

    # The exchange that was in flight with the first of them, and the one that reports the others.
    assert run(main()) == pytest.approx(4.0)


@pytest.mark.clause("BRK-4")
def test_what_is_known_then_includes_those_failures() -> None:
    async def main() -> BreakerState:
        line = a_line(Shelf(takes=1.0))
        failed(line)
        await asyncio.sleep(0.5)  # one exchange is in flight
        failed(line)
        failed(line)
        return await line.breaker_state()

    assert len(run(main()).seen) == 3


def test_no_worker_rests_while_the_store_answers() -> None:
    chance = Chance()

    async def main() -> None:
        line = a_line(Shelf(takes=1.0), chance=chance)
        failed(line)
        await asyncio.sleep(0.5)
        failed(line)
        await line.breaker_state()

    run(main())

    assert chance.drawn == 0


def counted(state: ProviderState, _now: float) -> tuple[ProviderState, None, Sequence[HistoryEntry]]:
    return ProviderState(turn=state.turn + 1), None, ()


@pytest.mark.parametrize("refused", [0, 1, 8])
def test_a_worker_that_loses_a_race_rests_longer_each_time_up_to_a_bound(refused: int) -> None:
    shelf = Shelf(refuses=refused)

    async def main() -> int:
        return (await swap(as_store(shelf), "llm", counted, random=Chance())).lost

    assert run(main()) == refused
    rests = [later - earlier for earlier, later in pairwise(shelf.asked_at)]
    assert rests == pytest.approx([min(0.001 * 2**lost, LONGEST_REST) for lost in range(1, refused + 1)])


@pytest.mark.parametrize("version", [0, 3])
def test_a_database_that_was_put_back_to_an_earlier_state_is_believed(version: int) -> None:
    async def main() -> tuple[int, int]:
        shelf = Shelf(ProviderRow(7, ProviderState(turn=7).dump()))
        line = a_line(shelf)
        await line.breaker_state()
        before = line.state.turn
        shelf.row = ProviderRow(version, ProviderState(turn=version).dump()) if version else None
        await asyncio.sleep(1)
        async with asyncio.timeout(60):
            await line.breaker_state()
        return before, line.state.turn

    assert run(main()) == (7, version)


def test_an_answer_that_was_overtaken_by_a_newer_one_is_dropped() -> None:
    async def main() -> int:
        line = a_line(Shelf())
        await asyncio.sleep(5)
        line.update(SharedState(ProviderState(turn=8), 8, now(), asked_at=4.9))
        line.update(SharedState(ProviderState(turn=7), 7, now(), asked_at=4.8))
        return line.state.turn

    assert run(main()) == 8


def may_retry_after_ten_calls(*, retry: bool, refused: bool = False) -> bool:
    """Whether there is a retry to spare after ten calls, where there was none before."""
    spent = ProviderState(retries=0.0)

    async def main() -> bool:
        spec = ProviderSpec("llm", limits=Limits(concurrency=20), retry_budget=0.5)
        line = a_line(Shelf(ProviderRow(1, spent.dump())), spec)
        line.limits.set_held({""} if refused else set())
        made = [await line.enter("", released=False, retry=retry) for _ in range(10)]
        assert made == [not refused] * 10
        return await line.limits.may_retry()

    return run(main())


def test_first_calls_that_are_made_earn_retries_and_no_others_do() -> None:
    assert may_retry_after_ten_calls(retry=False)
    assert not may_retry_after_ten_calls(retry=True)
    assert not may_retry_after_ten_calls(retry=False, refused=True)


async def entered(turns: Limiter, count: int) -> list[asyncio.Task[bool]]:
    tasks = [asyncio.create_task(turns.enter("", may_wait=True)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.clause("BRK-6")
def test_moments_that_were_slept_through_are_asked_for_again_and_not_made_up_for() -> None:
    async def main() -> tuple[list[bool], int, int, int]:
        asked: list[float] = []
        turns = Limiter(PER_SECOND, Limits(), request_grants=lambda: asked.append(now()))
        tasks = await entered(turns, 5)
        turns.apply_grants([Grant("", 0.1 * number) for number in range(5)], 0.0)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SleepyLoop)
        await asyncio.sleep(0.05)
        loop.sleep_through(0.2 + SLACK)
        await asyncio.sleep(0.02)
        return [task.done() for task in tasks], turns.in_flight, turns.request().waiting[""], len(asked)

    # The first began in time; two are too late; one is only a little late, and the last is still to come.
    done, using, waiting, asked = run(main())
    assert (sum(done), using, waiting) == (2, 3, 2)
    assert asked == 5 + 2


@pytest.mark.clause("BRK-6")
def test_a_worker_that_comes_later_gets_its_part_of_the_places_as_calls_end() -> None:
    async def main() -> Counter[str]:
        made, shelf = Counter[str](), Shelf(takes=0.002)

        async def call_on_and_on(line: ProviderLink, worker: str, seconds: float) -> None:
            while True:
                if await line.enter("", released=True, retry=False):
                    made[worker] += 1
                    await asyncio.sleep(seconds)
                    line.leave("")

        def begin(worker: str) -> list[asyncio.Task[None]]:
            line = a_line(shelf, replace(LLM, limits=Limits(concurrency=4)), worker=worker)
            return [
                asyncio.create_task(call_on_and_on(line, worker, 0.05 + slot / 1_000)) for slot in range(16)
            ]

        tasks = begin("first")
        await asyncio.sleep(1)
        made.clear()
        tasks += begin("later")
        await asyncio.sleep(10)
        for task in tasks:
            task.cancel()
        return made

    made = run(main())

    assert made["later"] > 0.4 * made.total()


def test_a_call_that_must_not_wait_is_answered_at_once() -> None:
    async def main() -> tuple[bool, float]:
        turns = Limiter(PER_SECOND, Limits(), request_grants=lambda: None)
        return await turns.enter("", may_wait=False), now()

    assert run(main()) == (False, 0.0)


@pytest.mark.clause("BRK-6")
def test_a_worker_whose_part_became_smaller_begins_nothing_until_enough_have_ended() -> None:
    async def main() -> list[int]:
        turns = Limiter(Limits(concurrency=4), Limits(), request_grants=lambda: None)
        turns.set_share(4, 10.0)
        await entered(turns, 6)
        using = [turns.in_flight]
        turns.set_share(2, 10.0)
        for _ in range(3):
            turns.leave("")
            using.append(turns.in_flight)
        return using

    assert run(main()) == [4, 3, 2, 2]
