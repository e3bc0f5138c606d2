"""What the simulated processes run: jobs of every shape that the engine promises something about."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pydantic import BaseModel, ValidationError

from holdfast import Backoff, ErrorClass, Holdfast, current
from holdfast.errors import BadResponse
from tests.simulation.letter_jobs import Lettering, declare_mailing
from tests.simulation.message_jobs import MessageJobs, Messaging, declare_messages
from tests.simulation.ports import POISON
from tests.simulation.provided_jobs import ProvidedJobs, Providing, declare_provided
from tests.simulation.service_failures import Expected
from tests.simulation.timed_jobs import (
    TimedJobs,
    declare_braid,
    declare_deadlines,
    declare_family,
    declare_ticks,
    declare_waits,
)

if TYPE_CHECKING:
    import sqlite3
    from collections import Counter
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    import httpx

    from holdfast.app.job_function import JobFunction
    from tests.simulation.witness import Witness

BUDGET = 4
STRIDES = 2
"""The remainder, by four, of the numbers of killers that store another stage each time."""
POISONED = 3
"""That of killers that store a stage which takes every worker down that reads it."""
CHILD = -1_000 * BUDGET
"""What is added to a parent's number to give that of its children: no other job's is negative."""
QUICK = Backoff.full_jitter(initial="1s", ceiling="8s")

SIDE = "side"
"""The queue that is paused at times, and that a fleet serves if there is one."""


NOT_YET = Expected(ErrorClass.CONNECTION_LOST, passes=True)
NEVER = Expected(ErrorClass.BUG, passes=False)


class Answer(BaseModel):
    """What the service answers."""

    effect: str


def read(response: httpx.Response) -> Answer:
    """Read an answer; one that makes no sense is the service's fault, and not that of the job's arguments."""
    response.raise_for_status()
    try:
        return Answer.model_validate_json(response.content)
    except ValidationError as error:
        raise BadResponse("the service answered with something else") from error


@dataclass(frozen=True)
class Jobs:
    """The jobs by what is special about them."""

    plain: JobFunction[[int], list[str]]
    order: JobFunction[[int], list[str]]
    fan: JobFunction[[int], list[str]]
    long: JobFunction[[int, float], list[str]]
    flaky: JobFunction[[int], int]
    doomed: JobFunction[[int], None]
    blocking: JobFunction[[int], int]
    parent: JobFunction[[int], list[str]]
    errand: JobFunction[[int], list[Any]]
    """It fails if the one that it has submitted does."""
    killer: JobFunction[[int], None]
    timed: TimedJobs
    provided: ProvidedJobs | None
    mailing: JobFunction[[int], list[str]] | None
    """It is replayed automatically when it failed, in a world that looks after letters."""
    messages: MessageJobs | None = None


class Outside(NamedTuple):
    """What the jobs of one process meet: services, a function that kills the process, a witness, a name to sign with, and what there is besides."""

    post: Callable[[str], Awaitable[httpx.Response]]
    die: Callable[[], NoReturn]
    witness: Witness
    sign: str
    recurs: bool
    call: Callable[..., Awaitable[None]]
    """Makes a call to the service behind a provider."""
    providing: Providing | None
    lettering: Lettering | None
    messaging: Messaging | None
    callback_failures: Counter[str]
    own_transaction: Callable[[], AbstractContextManager[sqlite3.Connection]]
    """Opens the file without the store: other processes cannot write until its end."""


def declare(hold: Holdfast, outside: Outside) -> Jobs:
    """Declare the jobs for one process; what it makes is signed with its name."""
    plain, order, fan, long = _calling(hold, outside)
    flaky, doomed, blocking = _pure(hold, outside.witness)

    @hold.job("parent")
    async def parent(number: int) -> list[str]:
        with outside.witness.running():
            children = [await plain.submit(number + CHILD), await flaky.submit(number + CHILD)]
            return [child.id for child in children]

    @hold.job("errand")
    async def errand(number: int) -> list[Any]:
        with outside.witness.running():
            child = await plain.submit(number + CHILD)
            return [{child.id: await child.result()}, f"end@{outside.sign}"]

    timed = _timed(hold, outside, [plain, flaky])
    provided = _provided(hold, outside)
    killer, mailing, messages = _deadly(hold, outside), _mailing(hold, outside), _messages(hold, outside)
    return Jobs(
        plain, order, fan, long, flaky, doomed, blocking, parent, errand, killer, timed, provided, mailing, messages
    )  # fmt: skip


def _messages(hold: Holdfast, outside: Outside) -> MessageJobs | None:
    """Messages and the jobs that publish them, in a world that has some."""
    if outside.messaging is None:
        return None
    declare = partial(declare_messages, hold, outside.witness, outside.sign, outside.callback_failures)
    return declare(outside.own_transaction)


def _mailing(hold: Holdfast, outside: Outside) -> JobFunction[[int], list[str]] | None:
    if outside.lettering is None:
        return None
    after = outside.lettering.replays_after
    return declare_mailing(hold, outside.witness, outside.sign, after, partial(_effect, outside))


async def _effect(outside: Outside) -> str:
    with outside.witness.trying():
        return f"{read(await outside.post(current().key)).effect}@{outside.sign}"


def _provided(hold: Holdfast, outside: Outside) -> ProvidedJobs | None:
    """Jobs that call providers, in a world that has some."""
    if outside.providing is None:
        return None
    return declare_provided(hold, outside.witness, outside.sign, outside.providing, outside.call)


def _timed(hold: Holdfast, outside: Outside, children: list[Any]) -> TimedJobs:
    """Jobs for which time matters."""
    witness, sign = outside.witness, outside.sign
    if outside.recurs:
        declare_ticks(hold, witness, sign)
    brief, dogged = declare_deadlines(hold, witness, sign)
    sleeper, listener = declare_waits(hold, witness, sign)
    family = declare_family(hold, witness, sign, children=children, apart=CHILD)
    braid = declare_braid(hold, witness, sign, children=children, apart=CHILD)
    return TimedJobs(brief, dogged, sleeper, listener, family, braid)


def _calling(hold: Holdfast, outside: Outside) -> Any:
    """Jobs that call the service, each call under a key."""
    witness, sign = outside.witness, outside.sign

    effect = partial(_effect, outside)

    @hold.stage("pack", timeout="20s")
    async def pack(number: int) -> str:
        return await effect()

    @hold.stage("ship", attempts=BUDGET - 1, timeout="20s")
    async def ship(number: int) -> str:
        return await effect()

    @hold.stage("rest")
    async def rest(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @hold.job("plain", timeout="30s")
    async def plain(number: int) -> list[str]:
        with witness.running():
            return [await effect(), f"end@{sign}"]

    @hold.job("order")
    async def order(number: int) -> list[str]:
        with witness.running():
            return [await pack(number), await ship(number), f"end@{sign}"]

    @hold.job("fan")
    async def fan(number: int) -> list[str]:
        with witness.running():
            calls = [pack.options(key=f"part-{part}")(number) for part in range(3)]
            return [*await asyncio.gather(*calls), f"end@{sign}"]

    @hold.job("long")
    async def long(number: int, seconds: float) -> list[str]:
        with witness.running():
            await rest(seconds)
            return [await ship(number), f"end@{sign}"]

    return plain, order, fan, long


def _pure(hold: Holdfast, witness: Witness) -> Any:
    """Jobs that call no service."""

    @hold.job("flaky")
    async def flaky(number: int) -> int:
        with witness.running():
            if current().attempt <= number % BUDGET:
                witness.observe_failure(NOT_YET)
                raise ConnectionError("not yet")
            return number

    @hold.job("doomed")
    async def doomed(number: int) -> None:
        with witness.running():
            witness.observe_failure(NEVER)
            raise TypeError(f"nothing can be made of {number}")

    @hold.job("blocking")
    def blocking(number: int) -> int:
        with witness.running():
            return number

    return flaky, doomed, blocking


def _deadly(hold: Holdfast, outside: Outside) -> JobFunction[[int], None]:
    """A job that takes its process down each time it runs: with odd numbers in a stage, else outside of any.

    One in four stores another stage each time, as if it had come further. One in four stores a stage that no worker can
    read and live: from then on its function is not reached any more.
    """

    @hold.stage("jump")
    async def jump() -> None:
        outside.die()

    @hold.stage("strides")
    async def stride() -> None: ...

    @hold.stage(POISON)
    async def poison() -> None: ...

    @hold.job("killer")
    async def killer(number: int) -> None:
        with outside.witness.running():
            await asyncio.sleep(0.5)  # its neighbours have begun by then
            if number % 4 == STRIDES:
                await stride.options(key=str(outside.witness.times_begun()))()
            elif number % 4 == POISONED:
                await poison()
            elif number % 2:
                await jump()
            outside.die()

    return killer
