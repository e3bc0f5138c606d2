"""Which cases are measured, in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.case import Case

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

SIZES = (100, 500, 2_000)


@dataclass(frozen=True)
class Amounts:
    """How many jobs each measure takes: enough to be steady, few enough to end."""

    drain: int
    stages: int
    calls: int
    slow_drain: int
    slow_stages: int
    peer_drain: int
    pickup: int
    one: int
    tasks: int
    bulk: int


FULL = Amounts(
    drain=40_000,
    stages=5_000,
    calls=10_000,
    slow_drain=1_000,
    slow_stages=300,
    peer_drain=2_000,
    pickup=200,
    one=2_000,
    tasks=5_000,
    bulk=20_000,
)
QUICK = Amounts(
    drain=5_000,
    stages=1_500,
    calls=3_000,
    slow_drain=300,
    slow_stages=100,
    peer_drain=300,
    pickup=50,
    one=500,
    tasks=2_000,
    bulk=5_000,
)


def cases(amounts: Amounts) -> Iterator[Case]:
    """Yield all cases; those to be compared stand next to each other."""
    yield from _drains(amounts)
    yield from _stages(amounts)
    yield from _calls(amounts)
    for engine in ("holdfast", "pgqueuer", "procrastinate"):
        yield Case("pickup", engine, amounts.pickup)
    yield from _submits(amounts)
    yield from _on_sqlite(amounts)
    yield from _on_rabbitmq(amounts)


def _drains(amounts: Amounts) -> Iterator[Case]:
    for size in (*SIZES, None):
        yield Case("drain", "holdfast", amounts.drain, size=size)
        yield Case("drain", "pgqueuer", amounts.drain, size=size)
        if size:
            yield Case("drain", "pgqueuer", amounts.drain, size=size, variant="pool")
    for size in (20, 100, None):
        yield Case("drain", "procrastinate", amounts.peer_drain, size=size)
    for size in (100, None):
        yield Case("drain", "dbos", amounts.slow_drain, size=size)


def _stages(amounts: Amounts) -> Iterator[Case]:
    for size in (*SIZES, None):
        yield Case("stages", "holdfast", amounts.stages, size=size)
    for size, variant in ((20, ""), (10, "threads"), (None, "")):
        yield Case("stages", "dbos", amounts.slow_stages, size=size, variant=variant)


def _calls(amounts: Amounts) -> Iterator[Case]:
    for store in ("postgres", "sqlite"):
        for size in (100, 500):
            for measure in ("call", "call-breaker", "call-limit"):
                yield Case(measure, "holdfast", amounts.calls, store, size)


def _submits(amounts: Amounts) -> Iterator[Case]:
    yield Case("submit-one", "holdfast", amounts.one)
    yield Case("submit-one", "pgqueuer", amounts.one)
    yield Case("submit-one", "procrastinate", amounts.one)
    yield Case("submit-tasks", "holdfast", amounts.tasks)
    yield Case("submit-tasks", "pgqueuer", amounts.tasks, variant="pool")
    yield Case("submit-tasks", "procrastinate", amounts.tasks, size=20)
    for size in (1_000, 5_000, 20_000):
        if size <= amounts.bulk:
            yield Case("submit-bulk", "holdfast", amounts.bulk, size=size)
            yield Case("submit-bulk", "pgqueuer", amounts.bulk, size=size)
    yield Case("submit-bulk", "procrastinate", amounts.bulk, size=1_000)


def _on_sqlite(amounts: Amounts) -> Iterator[Case]:
    for size in (*SIZES, None):
        yield Case("drain", "holdfast", amounts.drain, "sqlite", size)
    for size in (4, 16, None):
        yield Case("drain", "huey", amounts.peer_drain, "sqlite", size)
    for size in (*SIZES, None):
        yield Case("stages", "holdfast", amounts.stages, "sqlite", size)
    yield Case("submit-one", "holdfast", amounts.one, "sqlite")
    yield Case("submit-one", "huey", amounts.one, "sqlite")
    yield Case("submit-tasks", "holdfast", amounts.tasks, "sqlite")
    yield Case("submit-bulk", "holdfast", amounts.bulk, "sqlite")


def _on_rabbitmq(amounts: Amounts) -> Iterator[Case]:
    for size in (16, 64, None):
        yield Case("drain", "dramatiq", amounts.peer_drain, "rabbitmq", size)
    yield Case("submit-one", "dramatiq", amounts.one, "rabbitmq")


def chosen(
    amounts: Amounts, *, only: Collection[str], stores: Collection[str], engines: Collection[str]
) -> list[Case]:
    """Return the cases asked for; *only* may name a family, such as `submit`."""

    def matches(case: Case) -> bool:
        family = case.measure.split("-")[0]
        named = not only or case.measure in only or family in only
        return named and case.store in stores and case.engine in engines

    return [case for case in cases(amounts) if matches(case)]


def in_turn(chosen_cases: list[Case], round_number: int) -> list[Case]:
    """Return the cases of one round; every other round goes backwards, so that none is always first."""
    return chosen_cases if round_number % 2 else chosen_cases[::-1]
