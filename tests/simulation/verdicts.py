"""What the engine made of each failure: its history is compared with the failures that the handlers met.

A lease that ended with a retry, or with the job's failure, blames some failure for it. If a witness observed
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
    from tests.simulation.witness import ObservedFailure, Place, Seen

    Skipped = Callable[[float, float], float]

_ENDS = {"retry", "queued", "parked", "held", "failed", "expired"}
ROUNDED = 0.001
"""Seconds by which a history, which is in milliseconds, may be wrong."""


class Run(NamedTuple):
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
    """A failure that a witness observed, and the run that it ended."""

    observed: ObservedFailure
    run: Run


def every_failure_was_taken_for_what_it_is(world: World, seen: Seen) -> None:
    """The class that is on record is that of the failure that the handler met."""
    for observed, run in _tried(world, seen):
        means = observed.expected.error_class
        assert run.error_class == means, f"{observed.place.key} met {means}, and blames {run.error_class}"


def what_lasts_is_final(world: World, seen: Seen) -> None:
    """A failure that no further attempt can overcome ends the job; a retry makes calls under another key."""
    for observed, run in _tried(world, seen):
        if not observed.expected.passes:
            key, means = observed.place.key, observed.expected.error_class
            assert run.kind == "failed", f"{key} met {means}, and was to be tried again"
            assert not _later_calls(seen, observed.place), f"{key} met {means}, and was called again"


def hints_to_wait_were_followed(world: World, seen: Seen, skipped: Skipped) -> None:
    """After a hint no further call comes earlier, unless the database's clock has *skipped* the rest of the wait."""
    for observed, run in _tried(world, seen):
        wait, place = observed.expected.wait, observed.place
        if wait and run.kind == "retry":
            assert run.delay >= wait - ROUNDED, f"{place.key} is to wait {wait:g} s, and waits {run.delay:g}"
            for call in _later_calls(seen, place):
                waited = call.seconds - place.seconds + skipped(place.seconds, call.seconds)
                assert waited >= wait - ROUNDED, f"{place.key} was called after {waited:g} s, of {wait:g}"


def _tried(world: World, seen: Seen) -> Iterator[Tried]:
    """Find out what was made of each failure; those of leases that ended otherwise are left out."""
    runs = runs_of(world)
    for observed in seen.observed:
        number = (observed.place.token - 1) // 2
        run = runs[observed.place.job_id][number] if number < len(runs[observed.place.job_id]) else None
        if run is not None and run.blames_a_failure and _stage_of(observed.place) == run.stage:
            yield Tried(observed, run)


def runs_of(world: World) -> dict[str, list[Run]]:
    """How each lease of each job ended, in order: from its events, or from the row of a job that has failed."""
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    leased: set[str] = set()
    for event in sorted(world.events, key=lambda event: event["seq"]):
        if event["kind"] == "processing":
            leased.add(event["id"])
        elif event["kind"] in _ENDS and event["id"] in leased:
            leased.discard(event["id"])
            runs[event["id"]].append(_run(event["kind"], json.loads(event["meta"])))
    for row in world.ended:
        if row["status"] == "failed":
            runs[row["id"]].append(_run("failed", json.loads(row["failure"]) | {"stage": row["stage"]}))
    return runs


def _run(kind: str, meta: dict[str, Any]) -> Run:
    return Run(kind, meta.get("error_class"), meta.get("stage"), meta.get("delay_ms", 0) / 1_000)


def _stage_of(place: Place) -> str | None:
    """The stage that a key belongs to, as a history names it; `None` for the job itself."""
    _, _, stage, call = (*place.key.split(":"), "", "")[:4]
    if not stage:
        return None
    return stage if call == "#1" else f"{stage}[{call}]"


def _later_calls(seen: Seen, place: Place) -> list[Place]:
    """Calls under the same key by later leases: a worker that slept through the end of an earlier one knows of no hint."""
    return [call for call in seen.called if call.key == place.key and call.token > place.token]
