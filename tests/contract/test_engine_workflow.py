"""From a letter to its replay: no step before the one that it needs, each on record, and none that is taken twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest

from holdfast import Holdfast, JobFunction
from holdfast.core.dead_letters.letter import validate
from holdfast.core.dead_letters.replay_plan import Plan
from holdfast.core.durations import duration
from holdfast.errors import ConfigError, StepRefused
from holdfast.operations import Letter, LetterState
from holdfast.ports import Store
from holdfast.ports.dead_letters import DeadLetterStore
from tests.contract.conftest import Database, DatabaseClock, Logger
from tests.contract.letters import (
    ALL,
    all_failed,
    failed,
    in_letter_state,
    letter_of,
    move_plans,
    opened,
    planned,
    remediated,
    replayed,
    two_stages,
)
from tests.contract.services import STEADY, Service, declared, down, in_state, submitted
from tests.contract.steps import TIMEOUT

SAFE = "the service takes our key"

Opening = Callable[..., AbstractAsyncContextManager[Holdfast]]


@pytest.fixture
def opening(database: Database, logger: Logger) -> Opening:
    """Opens a Holdfast as another deployment would have it."""
    return partial(opened, database, logger)


@pytest.fixture
async def hold(opening: Opening) -> AsyncIterator[Holdfast]:
    async with opening(code_version="1") as made:
        yield made


@pytest.fixture
def review(hold: Holdfast, service: Service) -> JobFunction[[int], int]:
    """A job whose service is down."""
    service.error = down()
    return two_stages(hold, Service(), service)


@pytest.mark.clause("OPS-1")
async def test_each_step_is_refused_until_the_one_before_it_was_taken(
    hold: Holdfast, review: JobFunction[[int], int]
) -> None:
    job_id = await failed(hold, review, 1)
    dead = hold.dead_letters

    with pytest.raises(StepRefused, match=f"{job_id} is new, so it cannot be remediated; triage it first"):
        await dead.remediate(job_id, "INC-7", actor="ann")
    with pytest.raises(StepRefused, match="is new, so it cannot be closed; triage it first"):
        await dead.close(job_id, "done", actor="ann")
    too_soon = await dead.plan(job_id, safe=SAFE, actor="ann")
    assert (too_soon.token, too_soon.ready) == (None, [])
    assert too_soon.refused == {job_id: "it is new; cause and evidence come first"}

    await dead.triage(job_id, "transient", actor="ann")
    without_evidence = await dead.plan(job_id, safe=SAFE, actor="ann")
    assert without_evidence.refused == {job_id: "it is triaged; cause and evidence come first"}
    with pytest.raises(StepRefused, match="is triaged, so it cannot be closed; remediate it next"):
        await dead.close(job_id, "done", actor="ann")

    await dead.remediate(job_id, "INC-7", actor="ann")
    with pytest.raises(StepRefused, match="safe must not be empty"):
        await dead.plan(job_id, safe=" ", actor="ann")
    assert (await letter_of(hold, job_id)).replays == 0
    assert (await letter_of(hold, job_id)).state is LetterState.REMEDIATED


@pytest.mark.clause("OPS-1")
async def test_a_step_without_a_name_a_reason_or_a_known_cause_is_refused(
    hold: Holdfast, review: JobFunction[[int], int]
) -> None:
    job_id = await failed(hold, review, 1)
    dead = hold.dead_letters

    refusals: list[tuple[Awaitable[Any], str]] = [
        (dead.triage(job_id, "transient", actor=" "), "actor= must not be empty"),
        (dead.remediate(job_id, "", actor="ann"), "evidence must not be empty"),
        (dead.close(job_id, "", actor="ann"), "notes must not be empty"),
        (dead.discard(job_id, "", actor="ann"), "reason must not be empty"),
        (dead.plan(job_id, safe=SAFE, actor=""), "actor= must not be empty"),
    ]
    for asked, words in refusals:
        with pytest.raises(StepRefused, match=words):
            await asked
    with pytest.raises(ConfigError, match="'weather' is not a cause; use one of: transient, data, "):
        await dead.triage(job_id, "weather", actor="ann")
    with pytest.raises(ConfigError, match="pace=0 must be finite and above 0: it counts letters per second"):
        await dead.plan(job_id, safe=SAFE, actor="ann", pace=0)
    with pytest.raises(ConfigError, match="canary=-1 must be 0 or more; with 0, there is no canary"):
        await dead.plan(job_id, safe=SAFE, actor="ann", canary=-1)

    assert [step.state for step in (await dead.show(job_id)).steps] == [LetterState.NEW]


@pytest.mark.clause("OPS-1")
async def test_every_step_is_on_record_with_who_took_it_why_and_when(
    hold: Holdfast, review: JobFunction[[int], int], service: Service, clock: DatabaseClock
) -> None:
    began = await clock.now()
    async with hold.worker(poll=0.05):
        [job_id] = await all_failed(hold, [await review.submit(4)])
        await clock.advance(timedelta(seconds=1))
        await hold.dead_letters.triage(job_id, "transient", actor="ann", reason="502 for an hour")
        await clock.advance(timedelta(seconds=1))
        await hold.dead_letters.remediate(job_id, "INC-7", actor="bert", reason="it answers")
        plan = await hold.dead_letters.plan(job_id, safe=SAFE, actor="cleo")
        assert plan.token is not None
        service.error = None
        await replayed(hold, clock, plan.token, actor="dora")
        await in_letter_state(hold, job_id, LetterState.VERIFIED)
        await hold.dead_letters.close(job_id, "the service was down", actor="ann")

    found = await hold.dead_letters.show(job_id)
    steps = [(step.state, step.actor, step.reason) for step in found.steps]
    assert steps == [
        ("new", "holdfast", "bad gateway"),
        ("triaged", "ann", "502 for an hour"),
        ("remediated", "bert", "it answers"),
        ("validated", "cleo", ""),
        ("replaying", "dora", ""),
        ("verified", "holdfast", steps[5][2]),
        ("closed", "ann", ""),
    ]
    meta = [step.meta for step in found.steps]
    assert (meta[1]["cause"], meta[2]["evidence"]) == ("transient", "INC-7")
    assert (meta[3]["safe"], meta[3]["plan"], meta[4]["plan"]) == (SAFE, plan.token, plan.token)
    assert meta[6]["notes"] == "the service was down"
    times = [step.at for step in found.steps]
    assert times == sorted(times)
    assert began <= times[0] < times[1] < times[2] <= await clock.now()
    assert (found.letter.cause, found.letter.evidence, found.letter.safe) == ("transient", "INC-7", SAFE)
    assert (found.letter.notes, found.letter.replays) == ("the service was down", 1)


@pytest.mark.clause("OPS-1")
async def test_a_letter_that_is_replaying_verified_or_closed_goes_where_its_job_took_it(
    hold: Holdfast, review: JobFunction[[int], int], service: Service, clock: DatabaseClock
) -> None:
    job_id = await failed(hold, review, 1)
    token = await planned(hold, job_id)
    await hold.dead_letters.replay(token, actor="ann")
    await move_plans(hold)

    with pytest.raises(
        StepRefused, match="is replaying, so it cannot be discarded; wait until its job has ended"
    ):
        await hold.dead_letters.discard(job_id, "enough", actor="ann")
    service.error = None
    async with hold.worker(poll=0.05):
        await in_letter_state(hold, job_id, LetterState.VERIFIED)
    with pytest.raises(
        StepRefused, match="is verified, so it cannot be triaged; all that is left is to close it"
    ):
        await hold.dead_letters.triage(job_id, "data", actor="ann")
    await hold.dead_letters.close(job_id, "fine", actor="ann")
    with pytest.raises(StepRefused, match="is closed, so it cannot be discarded; nothing is left to do"):
        await hold.dead_letters.discard(job_id, "enough", actor="ann")


class Meeting:
    """A store in which two who read a letter have both read it before either goes on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.dead_letters = LettersReadTogether(store.dead_letters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class LettersReadTogether:
    """The dead letters of such a store."""

    def __init__(self, store: DeadLetterStore) -> None:
        self._store = store
        self._both = asyncio.Barrier(2)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, job_id: str, *, owner: str | None = None) -> Letter:
        found = await self._store.get(job_id, owner=owner)
        async with asyncio.timeout(TIMEOUT):
            await self._both.wait()
        return found


@pytest.mark.clause("OPS-1")
async def test_of_two_operators_who_take_a_step_at_once_one_takes_it(
    hold: Holdfast, review: JobFunction[[int], int]
) -> None:
    job_id = await failed(hold, review, 1)
    alone = hold.runtime
    hold._make_services(replace(alone, store=cast("Store", Meeting(alone.store))))

    asked = [hold.dead_letters.triage(job_id, "data", actor=actor) for actor in ("ann", "bert")]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    hold._make_services(alone)

    [refused] = [answer for answer in answers if isinstance(answer, BaseException)]
    assert isinstance(refused, StepRefused)
    assert str(refused) == f"the dead letter of job {job_id} has just changed; look at it again"
    assert len((await hold.dead_letters.show(job_id)).steps) == 2


@pytest.mark.clause("OPS-1")
async def test_among_many_those_that_do_not_allow_a_step_are_listed_and_the_others_take_it(
    hold: Holdfast, review: JobFunction[[int], int]
) -> None:
    async with hold.worker(poll=0.05):
        first, *others = await all_failed(hold, [await review.submit(number) for number in range(3)])
    await hold.dead_letters.triage(first, "data", actor="ann")

    moved = await hold.dead_letters.remediate(ALL, "INC-7", actor="ann")

    assert moved.done == [first]
    assert sorted(moved.refused) == others
    assert all("triage it first" in why for why in moved.refused.values())


@pytest.mark.clause("OPS-1")
@pytest.mark.parametrize("override", ["pause", "open"])
async def test_nothing_is_planned_while_its_provider_is_paused_or_open(
    hold: Holdfast, service: Service, override: str
) -> None:
    llm = hold.provider("llm")
    service.error = down()

    @hold.stage("ask", provider=llm, attempts=1)
    async def ask() -> int:
        return await service.call()

    @hold.job("grade")
    async def grade() -> int:
        return await ask()

    job_id = await failed(hold, grade)
    await remediated(hold, job_id)
    await getattr(hold.providers, override)("llm", actor="ann")

    refused = await hold.dead_letters.plan(job_id, safe=SAFE, actor="ann")
    assert refused.token is None
    assert refused.refused[job_id].startswith("provider 'llm' is ")

    await (hold.providers.resume if override == "pause" else hold.providers.close)("llm", actor="ann")
    assert (await hold.dead_letters.plan(job_id, safe=SAFE, actor="ann")).ready == [job_id]


@pytest.mark.clause("OPS-1")
async def test_a_replay_may_be_the_trial_that_closes_a_breaker(
    hold: Holdfast, service: Service, clock: DatabaseClock
) -> None:
    """All jobs that there were have failed: no other can be the trial."""
    job = declared(hold, service, hold.provider("llm", breaker=STEADY), attempts=1)
    service.error = down()
    async with hold.worker(slots=1, poll=0.05):
        handles = await submitted(job, 3)
        await all_failed(hold, handles)
        await all_failed(hold, await submitted(job, 1))
        await in_state(hold, "llm", "open")
        await remediated(hold)
        planned_while_open = await hold.dead_letters.plan(handles[0].id, safe=SAFE, actor="ann")
        assert planned_while_open.refused == {handles[0].id: "provider 'llm' is open"}

        await clock.advance(duration(STEADY.cooldown))
        token = (await hold.dead_letters.plan(ALL, safe=SAFE, actor="ann")).token
        assert token is not None
        service.error = None
        progress = await replayed(hold, clock, token)

    assert progress.counts.states == {LetterState.VERIFIED: 4}
    assert (await hold.providers.show("llm")).state in ("closed", "recovering")


@pytest.mark.clause("OPS-1")
async def test_a_stored_result_that_does_not_fit_changed_code_is_found_before_the_replay(
    hold: Holdfast, review: JobFunction[[int], int], opening: Opening
) -> None:
    job_id = await failed(hold, review, 1)
    await remediated(hold, job_id)

    async with opening(code_version="2") as later:

        @later.stage("fetch")
        async def fetching(number: int) -> list[str]:
            return [str(number)]

        @later.job("review")
        async def changed(number: int) -> list[str]:
            return await fetching(number)

        kept = await later.dead_letters.plan(job_id, safe=SAFE, actor="ann")
        anew = await later.dead_letters.plan(job_id, safe=SAFE, actor="ann", restart=True)

    assert kept.token is None
    assert kept.refused[job_id].startswith("the stored result of stage fetch does not fit: ")
    assert "replay with restart, or repair the code" in kept.refused[job_id]
    assert anew.ready == [job_id]


@pytest.mark.clause("OPS-1")
async def test_arguments_that_the_function_does_not_take_any_more_are_found_before_the_replay(
    hold: Holdfast, review: JobFunction[[int], int], opening: Opening
) -> None:
    job_id = await failed(hold, review, 1)
    await remediated(hold, job_id)

    async with opening() as later:

        @later.job("review")
        async def changed(essay: str) -> str:
            return essay

        refused = (await later.dead_letters.plan(job_id, safe=SAFE, actor="ann")).refused

    assert refused == {
        job_id: "job 'review': argument essay: Field required; "
        "no stage 'fetch' is declared here; replay with restart, or repair the code"
    }


@pytest.mark.clause("OPS-1")
async def test_a_stage_that_has_another_name_now_would_run_again_and_is_found_before_the_replay(
    hold: Holdfast, review: JobFunction[[int], int], opening: Opening
) -> None:
    job_id = await failed(hold, review, 1)
    await remediated(hold, job_id)

    async with opening() as later:

        @later.stage("download")
        async def download(number: int) -> int:
            return number

        @later.job("review")
        async def renamed(number: int) -> int:
            return await download(number)

        whole = await later.dead_letters.plan(job_id, safe=SAFE, actor="ann", restart=True, dry_run=True)
        kept = await later.dead_letters.plan(job_id, safe=SAFE, actor="ann")

    assert whole.ready == [job_id]
    assert kept.refused == {
        job_id: "no stage 'fetch' is declared here; replay with restart, or repair the code"
    }


@pytest.mark.clause("OPS-1")
async def test_a_letter_that_waits_in_a_plan_which_has_begun_is_in_no_other(
    hold: Holdfast, review: JobFunction[[int], int], opening: Opening
) -> None:
    ids = [await failed(hold, review, number) for number in (1, 2)]
    await remediated(hold)
    first = await hold.dead_letters.plan(ALL, safe=SAFE, actor="ann", canary=1)
    again = await hold.dead_letters.plan(ALL, safe=SAFE, actor="bob", canary=1)
    assert first.token is not None
    assert again.token is not None, "the other one has not begun"
    await hold.dead_letters.replay(again.token, actor="bob")
    await move_plans(hold)

    third = await hold.dead_letters.plan(ids[1], safe=SAFE, actor="ann")
    waiting = await letter_of(hold, ids[1])
    stolen = await hold.runtime.store.dead_letters.move(
        [waiting.seen], [validate("no reason", "stolen", actor="ann")], plan=Plan("stolen", "ann", 0.0, 1)
    )

    assert third.refused == {ids[1]: f"it waits in plan {again.token}, which has begun; stop that first"}
    assert stolen == []
    assert (await letter_of(hold, ids[1])).plan == again.token


@pytest.mark.clause("OPS-1")
async def test_a_job_that_is_not_declared_here_cannot_be_planned_here(
    hold: Holdfast, review: JobFunction[[int], int], opening: Opening
) -> None:
    job_id = await failed(hold, review, 1)
    await remediated(hold, job_id)

    async with opening() as undeclared:
        refused = (await undeclared.dead_letters.plan(job_id, safe=SAFE, actor="ann")).refused

    assert refused == {job_id: "no job named 'review' is declared here; import its module"}


@pytest.mark.clause("OPS-1")
@pytest.mark.parametrize(("version", "goes"), [("1", False), ("2", True), ("", True)])
async def test_a_mistake_in_the_code_is_replayed_with_other_code_only(
    hold: Holdfast, review: JobFunction[[int], int], opening: Opening, *, version: str, goes: bool
) -> None:
    job_id = await failed(hold, review, 1)
    await remediated(hold, job_id, cause="code")

    async with opening(code_version=version) as later:
        two_stages(later, Service(), Service())
        plan = await later.dead_letters.plan(job_id, safe=SAFE, actor="ann")

    assert (plan.token is not None) is goes
    if not goes:
        reason = "failed with 1, this is 1: deploy the repaired code first"
        assert plan.refused == {job_id: reason}
