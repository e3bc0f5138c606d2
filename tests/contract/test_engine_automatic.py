"""A job may allow its automatic replay: once, in time, while its provider is well, and on record."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast import AutoReplay, Backoff, Holdfast, Job, JobFunction, Permanent, Status
from holdfast.core.dead_letters.replay_plan import AUTOMATIC, NOT_LATER, PACE
from holdfast.engine.dead_letters.auto_replayer import AutoReplayer
from holdfast.errors import JobNotFound
from holdfast.operations import LetterFilter, LetterState
from holdfast.ports import Store
from holdfast.types import EventKind
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.letters import (
    all_failed,
    failed,
    in_letter_state,
    letter_of,
    move_plans,
    opened,
    replay_automatically,
    until_over,
)
from tests.contract.services import Service, down
from tests.contract.steps import TIMEOUT

S = LetterState
AUTO_REPLAY = AutoReplay(safe="grading the same essay twice does no harm", after="10m")
AFTER = timedelta(minutes=10, seconds=1)


@pytest.fixture
async def hold(database: Database, logger: Logger) -> AsyncIterator[Holdfast]:
    async with opened(database, logger) as made:
        yield made


def grade_of(hold: Holdfast, service: Service, **options: Any) -> JobFunction[[int], int]:
    """Declare a job that calls a service through a provider."""

    @hold.stage("ask", provider=hold.provider("llm"), attempts=1)
    async def ask(number: int) -> int:
        return await service.call(number)

    @hold.job("grade", **options)
    async def grade(number: int) -> int:
        return await ask(number)

    return grade


async def look(hold: Holdfast) -> None:
    """Run the services of a worker that replay letters once each."""
    await replay_automatically(hold)
    await move_plans(hold)


async def test_a_job_that_allows_it_is_replayed_after_a_while_and_every_step_of_it_is_on_record(
    hold: Holdfast, service: Service, clock: DatabaseClock, logger: Logger
) -> None:
    service.error = down()
    job_id = await failed(hold, grade_of(hold, service, auto_replay=AUTO_REPLAY), 7)
    await look(hold)
    assert (await letter_of(hold, job_id)).state is S.NEW, "not at once"

    await clock.advance(AFTER)
    service.error = None
    await look(hold)
    async with hold.worker(poll=0.05):
        assert (await hold.wait(job_id, timeout=TIMEOUT)).status is Status.COMPLETED
        await in_letter_state(hold, job_id, S.VERIFIED)

    steps = (await hold.dead_letters.show(job_id)).steps
    assert [(step.state, step.actor) for step in steps] == [
        (S.NEW, "holdfast"),
        (S.TRIAGED, AUTOMATIC),
        (S.REMEDIATED, AUTOMATIC),
        (S.VALIDATED, AUTOMATIC),
        (S.REPLAYING, AUTOMATIC),
        (S.VERIFIED, "holdfast"),
    ]
    assert (steps[1].meta["cause"], steps[3].meta["safe"]) == ("transient", AUTO_REPLAY.safe)
    assert steps[2].meta["evidence"] == "provider 'llm' lets calls through"
    [event] = [one for one in await hold.events(job_id) if one.kind is EventKind.REPLAYED]
    assert event.meta["actor"] == AUTOMATIC
    assert [line["job_id"] for line in logger.lines("automatic replay started")] == [job_id]


async def test_a_job_is_replayed_automatically_once(
    hold: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    service.error = down()
    job_id = await failed(hold, grade_of(hold, service, auto_replay=AUTO_REPLAY), 7)
    await clock.advance(AFTER)
    await asyncio.gather(*(replay_automatically(hold) for _ in range(4)))
    await move_plans(hold)
    async with hold.worker(poll=0.05):
        assert (await hold.wait(job_id, timeout=TIMEOUT)).status is Status.FAILED

    for _ in range(3):
        await clock.advance(AFTER)
        await look(hold)

    letter = await letter_of(hold, job_id)
    assert (letter.state, letter.replays, letter.deaths) == (S.NEW, 1, 2)
    assert len(service.calls) == 2


async def test_a_job_that_does_not_allow_it_is_not_replayed_automatically(
    hold: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    service.error = down()
    job_id = await failed(hold, grade_of(hold, service), 7)
    await clock.advance(AFTER)
    await look(hold)

    assert (await letter_of(hold, job_id)).state is S.NEW


async def test_what_no_retry_can_repair_is_left_to_an_operator(
    hold: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    service.error = Permanent("no such essay")
    job_id = await failed(hold, grade_of(hold, service, auto_replay=AUTO_REPLAY), 7)
    await clock.advance(AFTER)
    await look(hold)

    assert (await letter_of(hold, job_id)).state is S.NEW


async def test_a_letter_that_an_operator_has_taken_up_is_left_to_them(
    hold: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    service.error = down()
    job_id = await failed(hold, grade_of(hold, service, auto_replay=AUTO_REPLAY), 7)
    await hold.dead_letters.triage(job_id, "data", actor="ann")
    await clock.advance(AFTER)
    await look(hold)

    assert (await letter_of(hold, job_id)).state is S.TRIAGED


async def test_a_job_keeps_the_deadline_that_it_had(
    hold: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    service.error = down()
    grade = grade_of(hold, service, auto_replay=AUTO_REPLAY, deadline=timedelta(hours=1))
    job_id = await failed(hold, grade, 7)
    deadline = (await hold.read(job_id)).deadline_at
    assert deadline is not None

    await clock.advance(AFTER)
    await look(hold)

    job = await hold.read(job_id)
    assert (job.status, job.generation, job.deadline_at) == (Status.QUEUED, 2, deadline)


async def test_a_job_whose_deadline_has_passed_stays_where_it_is(
    hold: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    service.error = down()
    grade = grade_of(hold, service, auto_replay=AUTO_REPLAY, deadline=timedelta(minutes=5))
    job_id = await failed(hold, grade, 7)

    await clock.advance(AFTER)
    await look(hold)

    assert (await letter_of(hold, job_id)).state is S.NEW


async def test_a_job_waits_until_its_provider_lets_calls_through(
    hold: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    service.error = down()
    job_id = await failed(hold, grade_of(hold, service, auto_replay=AUTO_REPLAY), 7)
    await hold.providers.open("llm", actor="ann")
    await clock.advance(AFTER)
    await look(hold)
    assert (await letter_of(hold, job_id)).state is S.NEW

    await hold.providers.close("llm", actor="ann")
    await look(hold)
    assert (await letter_of(hold, job_id)).state is S.REPLAYING


class Emptied:
    """A store whose jobs have left for the archive since their letters were read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, job_id: str, *, owner: str | None = None) -> Job:
        raise JobNotFound(job_id)


async def test_a_letter_that_leaves_for_the_archive_meanwhile_does_no_harm(
    hold: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    service.error = down()
    job_id = await failed(hold, grade_of(hold, service, auto_replay=AUTO_REPLAY), 7)
    await clock.advance(AFTER)

    await AutoReplayer(replace(hold.runtime, store=cast("Store", Emptied(hold.runtime.store)))).run_once()

    assert (await letter_of(hold, job_id)).state is S.NEW


async def test_a_worker_runs_the_automatic_replayer(
    hold: Holdfast, service: Service, database: Database, logger: Logger
) -> None:
    at_once = AutoReplay(safe="keyed", after=timedelta(0))
    grade = grade_of(hold, service, auto_replay=at_once)
    service.error = down()
    job_id = await failed(hold, grade, 7)
    service.error = None

    async with Holdfast(database.url, logger=logger.writer, backoff=Backoff.none()) as other:
        grade_of(other, service, auto_replay=at_once)
        async with other.worker(poll=0.05):
            await in_letter_state(other, job_id, S.VERIFIED)


async def test_many_letters_go_on_by_themselves_over_several_pages_and_at_a_pace(
    hold: Holdfast, clock: DatabaseClock
) -> None:
    well = asyncio.Event()

    @hold.job("plain", attempts=1, auto_replay=AUTO_REPLAY)
    async def plain(number: int) -> int:
        if not well.is_set():
            raise TimeoutError("slow")
        return number

    async with hold.worker(poll=0.05):
        ids = await all_failed(hold, await plain.submit_many((number,) for number in range(120)))
    well.set()
    await clock.advance(AFTER)
    for _ in range(2):
        for _ in range(3):
            await look(hold)
        [plan] = await hold.runtime.store.replay_plans.running()  # the second page waits for its turn
        assert (
            len(await hold.dead_letters.list(LetterFilter(states=(LetterState.REPLAYING,), limit=120)))
            <= PACE
        )
        async with hold.worker(poll=0.05):
            await until_over(hold, clock, plan.token)
    for job_id in ids:
        assert (await hold.read(job_id)).status is Status.COMPLETED


async def test_what_failed_long_ago_is_left_to_people(
    hold: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    grade = grade_of(hold, service, auto_replay=AUTO_REPLAY)
    service.error = down()
    job_id = await failed(hold, grade, 7)

    await clock.advance(AFTER + NOT_LATER)
    await look(hold)

    assert (await letter_of(hold, job_id)).state is S.NEW
