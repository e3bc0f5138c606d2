"""The walk: every scenario, struck in every way before and after every call of its victim."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.crashpoints.every_scenario import SCENARIOS
from tests.crashpoints.story import Story
from tests.crashpoints.strikes import FAULTS, Spot, Strike
from tests.simulation import promises
from tests.simulation.processes import Moment
from tests.simulation.shapes import shapes_made_once
from tests.simulation.simulation import fresh_folder, unheard_dead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

SEED = 1
TURNS = len(Moment) * len(FAULTS)
"""In so many ways a call can be struck."""


@dataclass
class Outcome:
    """What became of one run."""

    scenario: str
    strike: Strike | None
    passed: list[Spot]
    violations: list[str]
    trace: list[str] = field(repr=False)


def play_each(scenario: str, strikes: Sequence[Strike | None], *, seed: int = SEED) -> list[Outcome]:
    """Tell a story once for each of *strikes*."""
    with unheard_dead(), shapes_made_once(), _nobody_waits_for_a_lock():
        return [_play(scenario, strike, seed) for strike in strikes]


def play(scenario: str, strike: Strike | None = None, *, seed: int = SEED) -> Outcome:
    """Tell a story once, with at most one blow, and check it."""
    [outcome] = play_each(scenario, [strike], seed=seed)
    return outcome


def strikes_at(passed: Sequence[Spot]) -> Iterator[Strike]:
    """All blows that can fall on a victim that passes these spots."""
    for spot in sorted(passed):
        for fault in FAULTS:
            yield Strike(spot, fault)


def strikes_in_turn(passed: Sequence[Spot], turn: int) -> Iterator[Strike]:
    """One blow at each call, in another way each time; all turns together are all blows."""
    for place, (_, spots) in enumerate(groupby(sorted(passed), key=attrgetter("call"))):
        ways = list(strikes_at(list(spots)))
        # Every round begins one way later: else calls that come in pairs would only ever meet half of the ways.
        way = (place + place // TURNS + turn) % TURNS
        yield from ways[way : way + 1]


def _play(scenario: str, strike: Strike | None, seed: int) -> Outcome:
    with fresh_folder() as folder:
        story = Story(folder, strike, seed=seed)
        loop = story.world.loop
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(lambda *_: None)  # dead processes leave tasks behind that nobody asks
        try:
            violations = loop.run_until_complete(_told(scenario, story))
        finally:
            asyncio.set_event_loop(None)
            story.world.close()
    return Outcome(scenario, strike, story.blow.passed, violations, story.world.trace)


async def _told(scenario: str, story: Story) -> list[str]:
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
    if story.blow.planned is not None and not story.blow.struck:
        found.append("the blow never fell")
    return story.world.violations + found


def _nobody_waits_for_a_lock() -> AbstractContextManager[Any]:
    """Let a locked file be a store that is away: whoever holds the lock lives in the same thread."""
    return mock.patch("holdfast.stores.sqlite.database.BUSY_MS", 0)
