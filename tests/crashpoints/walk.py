"""The walk: every scenario with every fault before and after every call of its victim."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.crashpoints.every_scenario import SCENARIOS
from tests.crashpoints.planned_fault import FAULTS, PlannedFault, Spot
from tests.crashpoints.story import Story
from tests.simulation import promises
from tests.simulation.processes import Moment
from tests.simulation.shapes import shapes_made_once
from tests.simulation.simulation import collected_at_the_end, fresh_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

SEED = 1
TURNS = len(Moment) * len(FAULTS)
"""How many different faults can be injected at a call."""


@dataclass
class Outcome:
    """What became of one run."""

    scenario: str
    planned: PlannedFault | None
    passed: list[Spot]
    violations: list[str]
    trace: list[str] = field(repr=False)


def play_each(scenario: str, faults: Sequence[PlannedFault | None], *, seed: int = SEED) -> list[Outcome]:
    """Play a scenario once for each of *faults*; `None` stands for no fault."""
    with collected_at_the_end(), shapes_made_once(), _no_wait_for_locks():
        return [_play(scenario, planned, seed) for planned in faults]


def play(scenario: str, planned: PlannedFault | None = None, *, seed: int = SEED) -> Outcome:
    """Play a scenario once, with at most one fault, and check it."""
    [outcome] = play_each(scenario, [planned], seed=seed)
    return outcome


def faults_at(passed: Sequence[Spot]) -> Iterator[PlannedFault]:
    """All faults that can be injected into a victim that passes these spots."""
    for spot in sorted(passed):
        for fault in FAULTS:
            yield PlannedFault(spot, fault)


def faults_in_turn(passed: Sequence[Spot], turn: int) -> Iterator[PlannedFault]:
    """One fault at each call, the kinds in rotation; all turns together are all faults."""
    for place, (_, spots) in enumerate(groupby(sorted(passed), key=attrgetter("call"))):
        faults = list(faults_at(list(spots)))
        # Every round begins one fault later: else calls that come in pairs would only ever meet half of the faults.
        first = (place + place // TURNS + turn) % TURNS
        yield from faults[first : first + 1]


def _play(scenario: str, planned: PlannedFault | None, seed: int) -> Outcome:
    with fresh_folder() as folder:
        story = Story(folder, planned, seed=seed)
        loop = story.world.loop
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(lambda *_: None)  # tasks of dead processes are never awaited
        try:
            violations = loop.run_until_complete(_violations(scenario, story))
        except RuntimeError:
            if not story.world.violations:  # else the world has stopped its loop, to end a livelock
                raise
            violations = story.world.violations
        finally:
            asyncio.set_event_loop(None)
            story.world.close()
    return Outcome(scenario, planned, story.injector.passed, violations, story.world.trace)


async def _violations(scenario: str, story: Story) -> list[str]:
    found: list[str] = []
    try:
        await SCENARIOS[scenario](story)
        found += promises.broken(
            story.books,
            story.world.service.log,
            story.memory,
            story.world.seen,
            calls=story.world.auditor.provider_oracle.calls,
        )
    except Exception as error:
        found.append(str(error) if isinstance(error, AssertionError) else repr(error))
    if story.injector.planned is not None and not story.injector.injected:
        found.append("the fault was never injected")
    return story.world.violations + found


def _no_wait_for_locks() -> AbstractContextManager[Any]:
    """Let a locked file be a store that is away: the holder of the lock runs in the same thread."""
    return mock.patch("holdfast.stores.sqlite.database.BUSY_MS", 0)
