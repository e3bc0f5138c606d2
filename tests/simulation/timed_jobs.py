"""Jobs for which time matters: they have deadlines, sleep, wait for signals and for each other, and recur."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import JobFailed
from holdfast.errors import JobCancelled, JobNotFound, ResultTimeout, SignalTimeout
from tests.simulation.timing_oracle import EVERY, SECOND, TICK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast import Holdfast, JobFunction, JobHandle
    from tests.simulation.witness import Witness

GO = "go"
"""The signal that listeners wait for."""

BUSY = 0.3
"""Seconds that a listener has other things to do: a signal that comes meanwhile has not reached it yet."""

CHILD_DEADLINE = 2.0
"""Seconds until the deadline of the children of every third family."""

SIGNALS = 2
"""How many of them each listener waits for."""

LOOKS = 3
"""How often a braid looks for the result of each child."""

UNKNOWN_JOB = "00000000-0000-7000-8000-000000000000"
"""The id of a job that was never submitted."""


class TimedJobs(NamedTuple):
    """The jobs by what is special about them."""

    brief: JobFunction[[int, float], list[str]]
    """It is stopped at its deadline."""
    dogged: JobFunction[[int, float], list[str]]
    """It goes on after its deadline, for a late result."""
    sleeper: JobFunction[[int, float, int], list[str]]
    listener: JobFunction[[int, float | None], list[str]]
    family: JobFunction[[int], list[Any]]
    braid: JobFunction[[int], list[Any]]
    """It does many things side by side, and some of them in another order when it is run again."""


def declare_deadlines(hold: Holdfast, witness: Witness, sign: str) -> Any:
    """Jobs that take their time; submitted with a deadline, some of them take too long."""

    @hold.stage("linger")
    async def linger(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @hold.job("brief")
    async def brief(number: int, seconds: float) -> list[str]:
        with witness.running():
            await linger(seconds)
            return [f"end@{sign}"]

    @hold.job("dogged", on_deadline="finish")
    async def dogged(number: int, seconds: float) -> list[str]:
        with witness.running():
            await linger(seconds)
            await asyncio.sleep(seconds)
            return [f"end@{sign}"]

    @dogged.when_late_is_accepted
    @hold.job("recompute")
    async def recompute(job_id: str, result: list[str]) -> list[str]:
        with witness.running():
            return [*result[:-1], f"end@{sign}"]

    return brief, dogged


def declare_waits(hold: Holdfast, witness: Witness, sign: str) -> Any:
    """Jobs that are parked."""

    @hold.job("sleeper")
    async def sleeper(number: int, seconds: float, naps: int = 2) -> list[str]:
        with witness.running():
            for nap in range(naps):
                with witness.napping(seconds, f"#{nap + 1}"):
                    await hold.sleep(seconds)
            return [f"end@{sign}"]

    @hold.job("listener")
    async def listener(number: int, timeout: float | None) -> list[str]:
        with witness.running():
            await asyncio.sleep(BUSY)
            words = [await _signal(hold, timeout) for _ in range(SIGNALS)]
            return [*words, f"end@{sign}"]

    return sleeper, listener


async def _signal(hold: Holdfast, timeout: float | None) -> str:
    try:
        return str(await hold.wait_for(GO, timeout=timeout))
    except SignalTimeout:
        return "silence"


def declare_family(
    hold: Holdfast, witness: Witness, sign: str, *, children: Sequence[JobFunction[[int], Any]], apart: int
) -> JobFunction[[int], list[Any]]:
    """A job that waits for others; their numbers are *apart* from its own."""

    @hold.job("family")
    async def family(number: int) -> list[Any]:
        with witness.running():
            timed = [
                child.options(deadline=CHILD_DEADLINE if number % 3 == 0 else None) for child in children
            ]
            born = [await child.submit(number + apart) for child in timed]
            outcomes = await asyncio.gather(*map(_outcome, born))
            return [dict(zip([child.id for child in born], outcomes, strict=True)), f"end@{sign}"]

    return family


def declare_braid(
    hold: Holdfast, witness: Witness, sign: str, *, children: Sequence[JobFunction[[int], Any]], apart: int
) -> JobFunction[[int], list[Any]]:
    """A job whose branches wait beside each other; each gets the same answers in every attempt."""

    @hold.stage("strand")
    async def strand(part: int) -> int:
        await asyncio.sleep(0.6 / (part + 1))  # the last is the first to end, but only the first time
        return part

    async def listening() -> list[str]:
        # Which of the two waits comes first is left to chance.
        return witness.note_answer(
            "words", sorted(await asyncio.gather(_signal(hold, 5.0), _signal(hold, 5.0)))
        )

    async def looking(number: int, part: int) -> tuple[str, Any]:
        await strand.options(key=f"part-{part}")(part)
        child = await children[part].submit(number + apart)
        for look in range(LOOKS):
            result = witness.note_answer(f"look {part}.{look}", await _outcome(child, timeout=1.0))
            if result != "not yet":
                return child.id, result
        return child.id, "not yet"

    @hold.job("braid")
    async def braid(number: int) -> list[Any]:
        with witness.running():
            words, unknown, *looked = await asyncio.gather(
                listening(),
                _outcome(hold.handle(UNKNOWN_JOB), timeout=1.0),
                *[looking(number, part) for part in range(len(children))],
            )
            return [dict(looked), *words, unknown, f"end@{sign}"]

    return braid


async def _outcome(child: JobHandle[Any], timeout: float | None = None) -> Any:
    try:
        return await child.result(timeout)
    except (JobFailed, JobCancelled):
        return None
    except ResultTimeout:
        return "not yet"
    except JobNotFound:
        return "unknown job"


def declare_ticks(hold: Holdfast, witness: Witness, sign: str) -> None:
    """A job that recurs, each tick of it."""

    @hold.every(EVERY / SECOND, missed="all")
    @hold.job(TICK)
    async def tick() -> list[str]:
        with witness.running():
            return [f"end@{sign}"]
