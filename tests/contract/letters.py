"""Jobs that fail, what an operator does with their letters, and services of a worker that run when a test runs them."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import httpx

from holdfast import Backoff, Holdfast, JobFunction, JobHandle, Status
from holdfast.core.dead_letters.replay_plan import Phase
from holdfast.engine.dead_letters.archiver import EVERY, Archiver
from holdfast.engine.dead_letters.auto_replayer import AutoReplayer
from holdfast.engine.dead_letters.replay_planner import Progress
from holdfast.engine.dead_letters.replayer import Replayer
from holdfast.engine.dead_letters.ticket_notifier import TicketNotifier
from holdfast.engine.runtime import Runtime
from holdfast.operations import Letter, LetterFilter, LetterState
from holdfast.ports import Store
from holdfast.ports.dead_letters import TicketRow, TicketStore
from holdfast.wiring.assemble import assemble
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.services import Service, until
from tests.contract.steps import TIMEOUT

ALL = LetterFilter(limit=1_000)
SECOND = timedelta(seconds=1)
SELDOM = timedelta(hours=1)
"""How often a worker looks after letters here: never, as far as a test is concerned."""

A_MINUTE_LATER = timedelta(minutes=1, seconds=1)
"""When a hook that did not take a ticket is called again."""


class WithholdsTickets:
    """A store that hands out its tickets to the test alone, which takes them from the store *behind* it."""

    def __init__(self, behind: Store) -> None:
        self.behind = behind
        self.tickets = WithheldTickets(behind.tickets)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


class WithheldTickets:
    """The tickets of such a store."""

    def __init__(self, behind: TicketStore) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    async def take(self, **_: Any) -> list[TicketRow]:
        return []


@asynccontextmanager
async def opened(database: Database, logger: Logger, **options: Any) -> AsyncIterator[Holdfast]:
    """Open a Holdfast whose time a test can move, and whose services run when the test runs them."""

    def quietly(*args: Any, **given: Any) -> Runtime:
        runtime = assemble(*args, **given, store_of=lambda *_, **__: database.new_store())
        letters = replace(runtime.letters, poll_interval=SELDOM)
        return replace(runtime, letters=letters, store=cast("Store", WithholdsTickets(runtime.store)))

    defaults = {"attempts": 2, "backoff": Backoff.none(), "logger": logger.writer, "assemble": quietly}
    async with Holdfast(database.url, **{**defaults, **options}) as hold:
        yield hold


def answered(status: int, message: str = "no", **headers: str) -> httpx.HTTPStatusError:
    """Make what a client raises when a service answers with an error."""
    request = httpx.Request("POST", "https://gateway.test/v1")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx.Response(status, headers=named, request=request)
    return httpx.HTTPStatusError(message, request=request, response=response)


def two_stages(hold: Holdfast, fetch: Service, llm: Service, **options: Any) -> JobFunction[[int], int]:
    """Declare the job `review`, which calls one service in stage `fetch`, and then the other in stage `llm`."""

    @hold.stage("fetch")
    async def fetching(number: int) -> int:
        return await fetch.call(number)

    @hold.stage("llm")
    async def asking(number: int) -> int:
        return 2 * await llm.call(number)

    @hold.job("review", **options)
    async def review(number: int) -> int:
        return await asking(await fetching(number))

    return review


async def all_failed(hold: Holdfast, handles: Iterable[JobHandle[Any]]) -> list[str]:
    """Wait until the jobs have failed; give their ids, the oldest first."""
    ids = sorted(handle.id for handle in handles)
    for job_id in ids:
        assert (await hold.wait(job_id, timeout=TIMEOUT)).status is Status.FAILED
    return ids


async def failed(hold: Holdfast, job: JobFunction[..., Any], *args: Any) -> str:
    """Submit one job, and run a worker until it has failed; give its id."""
    async with hold.worker(poll=0.05):
        [job_id] = await all_failed(hold, [await job.submit(*args)])
    return job_id


async def letter_of(hold: Holdfast, job_id: str) -> Letter:
    return (await hold.dead_letters.show(job_id)).letter


async def remediated(hold: Holdfast, selected: str | LetterFilter = ALL, *, cause: str = "transient") -> None:
    """Put on record why it failed, and that this is over."""
    await hold.dead_letters.triage(selected, cause, actor="ann")
    await hold.dead_letters.remediate(selected, "INC-7 is resolved", actor="ann")


async def planned(hold: Holdfast, selected: str | LetterFilter = ALL, **options: Any) -> str:
    """Take every step to a plan; give its token."""
    await remediated(hold, selected)
    plan = await hold.dead_letters.plan(selected, safe="the service takes our key", actor="ann", **options)
    assert plan.token is not None, plan.refused
    return plan.token


async def move_plans(hold: Holdfast) -> None:
    """Let a worker's replayer look once."""
    await Replayer(hold.runtime, lambda: None).run_once()


async def replayed(hold: Holdfast, clock: DatabaseClock, token: str, *, actor: str = "ann") -> Progress:
    """Replay a plan, with a worker that runs beside it, until it is done or stopped and the replays in flight have ended."""
    await hold.dead_letters.replay(token, actor=actor)
    return await until_over(hold, clock, token)


async def until_over(hold: Holdfast, clock: DatabaseClock, token: str) -> Progress:
    async with asyncio.timeout(TIMEOUT):
        while True:
            await move_plans(hold)
            progress = await hold.dead_letters.progress(token)
            ended = progress.plan.phase in (Phase.DONE, Phase.STOPPED)
            if ended and LetterState.REPLAYING not in progress.counts.states:
                return progress
            await clock.advance(SECOND)
            await asyncio.sleep(0.01)


async def in_letter_state(hold: Holdfast, job_id: str, state: LetterState) -> Letter:
    async def look() -> bool:
        return (await letter_of(hold, job_id)).state is state

    await until(look)
    return await letter_of(hold, job_id)


def a_notifier(hold: Holdfast, *, hook_timeout: float = TIMEOUT, **runtime: Any) -> TicketNotifier:
    """Make the ticket notifier of a worker, which remembers which hooks have taken what."""
    store: Any = hold.runtime.store
    return TicketNotifier(replace(hold.runtime, store=store.behind, **runtime), hook_timeout=hook_timeout)


async def notify_tickets(hold: Holdfast, *, hook_timeout: float = TIMEOUT) -> None:
    """Notify of the tickets that are due, as a worker that has just begun would."""
    await a_notifier(hold, hook_timeout=hook_timeout).run_once()


async def replay_automatically(hold: Holdfast) -> None:
    """Let a worker's automatic replayer look once."""
    await AutoReplayer(hold.runtime).run_once()


async def run_archiver(hold: Holdfast, clock: DatabaseClock) -> None:
    """Let a worker's archiver have a turn."""
    archiver = Archiver(hold.runtime)
    await archiver.run_once()  # the first of all only notes the time
    await clock.advance(EVERY)
    await archiver.run_once()
