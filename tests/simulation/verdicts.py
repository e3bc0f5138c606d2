"""What the engine made of each failure: its history is held against what the handlers were told.

A lease that ended with a retry, or with the job's failure, blames some failure for it. If a witness heard
one under the same lease and key, that is the one, and what has to be made of it is known.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import ErrorClass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.invariants import World
    from tests.simulation.witness import Heard, Place, Seen

    Skipped = Callable[[float, float], float]

_ENDS = {"retry", "queued", "parked", "held", "failed", "expired"}
ROUNDED = 0.001
"""Seconds by which a history, which tells milliseconds, may be wrong."""


class Lap(NamedTuple):
    """How a lease ended: in what, blamed on which class and which stage, to wait how many seconds."""

    kind: str
    error_class: str | None
    stage: str | None
    delay: float

    @property
    def blames_a_failure(self) -> bool:
        """Whether the handler's failure ended the lease, and not a deadline that came first."""
        return self.kind in ("retry", "failed") and self.error_class != ErrorClass.TIMEOUT


class Tried(NamedTuple):
    """A failure that was heard, and the end of the lease that it ended."""

    heard: Heard
    lap: Lap


def every_failure_was_taken_for_what_it_is(world: World, seen: Seen) -> None:
    """The class that is on record is that of the failure that the handler met."""
    for heard, lap in _tried(world, seen):
        means = heard.expected.error_class
        assert lap.error_class == means, f"{heard.place.key} met {means}, and blames {lap.error_class}"


def what_lasts_is_final(world: World, seen: Seen) -> None:
    """A failure that no further attempt can overcome ends the job; who brings it back makes calls under another key."""
    for heard, lap in _tried(world, seen):
        if not heard.expected.passes:
            key, means = heard.place.key, heard.expected.error_class
            assert lap.kind == "failed", f"{key} met {means}, and was to be tried again"
            assert not _later_calls(seen, heard.place), f"{key} met {means}, and was called again"


def who_asks_to_be_left_alone_is(world: World, seen: Seen, skipped: Skipped) -> None:
    """After a hint no further call comes earlier, unless the database's clock has *skipped* the rest of the wait."""
    for heard, lap in _tried(world, seen):
        wait, place = heard.expected.wait, heard.place
        if wait and lap.kind == "retry":
            assert lap.delay >= wait - ROUNDED, f"{place.key} is to wait {wait:g} s, and waits {lap.delay:g}"
            for call in _later_calls(seen, place):
                waited = call.seconds - place.seconds + skipped(place.seconds, call.seconds)
                assert waited >= wait - ROUNDED, f"{place.key} was called after {waited:g} s, of {wait:g}"


def _tried(world: World, seen: Seen) -> Iterator[Tried]:
    """Find out what was made of each failure; those of leases that ended otherwise are left out."""
    laps = laps_of(world)
    for heard in seen.heard:
        number = (heard.place.token - 1) // 2
        lap = laps[heard.place.job_id][number] if number < len(laps[heard.place.job_id]) else None
        if lap is not None and lap.blames_a_failure and _stage_of(heard.place) == lap.stage:
            yield Tried(heard, lap)


def laps_of(world: World) -> dict[str, list[Lap]]:
    """How each lease of each job ended, in order: written down, or told by the row of a job that has failed."""
    laps: defaultdict[str, list[Lap]] = defaultdict(list)
    leased: set[str] = set()
    for event in sorted(world.events, key=lambda event: event["seq"]):
        if event["kind"] == "processing":
            leased.add(event["id"])
        elif event["kind"] in _ENDS and event["id"] in leased:
            leased.discard(event["id"])
            laps[event["id"]].append(_lap(event["kind"], json.loads(event["meta"])))
    for row in world.ended:
        if row["status"] == "failed":
            laps[row["id"]].append(_lap("failed", json.loads(row["failure"]) | {"stage": row["stage"]}))
    return laps


def _lap(kind: str, told: dict[str, Any]) -> Lap:
    return Lap(kind, told.get("error_class"), told.get("stage"), told.get("delay_ms", 0) / 1_000)


def _stage_of(place: Place) -> str | None:
    """The stage that a key belongs to, as a history names it; `None` for the job itself."""
    _, _, stage, call = (*place.key.split(":"), "", "")[:4]
    if not stage:
        return None
    return stage if call == "#1" else f"{stage}[{call}]"


def _later_calls(seen: Seen, place: Place) -> list[Place]:
    """Calls under the same key by later leases: whoever slept through the end of an earlier one knows of no hint."""
    return [call for call in seen.called if call.key == place.key and call.token > place.token]
